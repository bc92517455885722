# Checkpoints met from outside: by SIGKILL, and by the safetensors package from PyPI.
add_executable(checkpoint_kill_saver checkpoint_kill_saver.cc)
target_compile_options(checkpoint_kill_saver PRIVATE ${TANDEM_CXX_FLAGS})
target_link_libraries(checkpoint_kill_saver PRIVATE tandem_checkpoint)
set_target_properties(checkpoint_kill_saver PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

tandem_test(checkpoint_kill_test SOURCES checkpoint_kill_test.cc LIBS tandem_checkpoint)
target_compile_definitions(checkpoint_kill_test PRIVATE TANDEM_KILL_SAVER="$<TARGET_FILE:checkpoint_kill_saver>")
add_dependencies(checkpoint_kill_test checkpoint_kill_saver)

# Exit code 77 means skipped: no interpreter given, or it has no safetensors package.
add_executable(safetensors_tool python/safetensors_tool.cc)
target_compile_options(safetensors_tool PRIVATE ${TANDEM_CXX_FLAGS})
target_link_libraries(safetensors_tool PRIVATE tandem_checkpoint)
set_target_properties(safetensors_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(TANDEM_PYTHON AND EXISTS "${TANDEM_PYTHON}")
  add_test(NAME Safetensors.PythonPackageReadsOursAndWeReadIts
    COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/safetensors_test.py $<TARGET_FILE:safetensors_tool>)
else()
  add_test(NAME Safetensors.PythonPackageReadsOursAndWeReadIts
    COMMAND sh -c "echo 'skipped: no Python with safetensors and numpy, set -DTANDEM_PYTHON=<path>'; exit 77")
endif()
set_tests_properties(Safetensors.PythonPackageReadsOursAndWeReadIts PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
