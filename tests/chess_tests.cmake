# Chess engines as processes: a fake one with planted faults, and Debian's Stockfish where it is installed.
if(TANDEM_TESTS)
  add_executable(fake_engine chess/fake_engine.cc)
  target_compile_options(fake_engine PRIVATE ${TANDEM_CXX_FLAGS})
  target_link_libraries(fake_engine PRIVATE tandem_chess)
  set_target_properties(fake_engine PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  tandem_test(chess_engines_test SOURCES chess/engines_test.cc LIBS tandem_chess_match)
  target_compile_definitions(chess_engines_test PRIVATE FAKE_ENGINE="$<TARGET_FILE:fake_engine>")
  add_dependencies(chess_engines_test fake_engine)
endif()
# `tandem match` as a whole.
if(TANDEM_TESTS)
  foreach(class Games Faults BadInput Looks Stockfish)
    add_test(NAME ChessMatch.${class}
      COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/chess_match_test.py ${CMAKE_BINARY_DIR}/bin $<TARGET_FILE:fake_engine> ${class})
    set_tests_properties(ChessMatch.${class} PROPERTIES TIMEOUT 1800)
  endforeach()
endif()
