# Option prices and Greeks beside QuantLib's, from PyPI. Exit code 77 means skipped: there is no such package.
add_executable(option_grid_tool python/option_grid_tool.cc)
target_compile_options(option_grid_tool PRIVATE ${TANDEM_CXX_FLAGS})
target_link_libraries(option_grid_tool PRIVATE tandem_market)
set_target_properties(option_grid_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME OptionMath.AgreesWithQuantLib
  COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/option_math_test.py $<TARGET_FILE:option_grid_tool>)
set_tests_properties(OptionMath.AgreesWithQuantLib PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
