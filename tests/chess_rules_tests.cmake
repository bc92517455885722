# The rules of chess beside python-chess's, from PyPI. Exit code 77 means skipped: there is no such package.
if(TANDEM_TESTS)
  add_executable(chess_rules_tool chess/rules_tool.cc)
  target_compile_options(chess_rules_tool PRIVATE ${TANDEM_CXX_FLAGS})
  target_link_libraries(chess_rules_tool PRIVATE tandem_chess)
  set_target_properties(chess_rules_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  foreach(part Games Fens Sans Pgn)
    add_test(NAME ChessRules.${part}
      COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/chess_rules_test.py $<TARGET_FILE:chess_rules_tool> ${part})
    set_tests_properties(ChessRules.${part} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
  endforeach()
  set_tests_properties(ChessRules.Games PROPERTIES PROCESSORS 2 COST 30)
endif()
