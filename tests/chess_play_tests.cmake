# `tandem play chess`: as a UCI engine driven by python-chess and by hand, and in a terminal. Exit code 77 means skipped.
if(TANDEM_TESTS)
  foreach(class Conformance EnginesBehind Games)
    add_test(NAME ChessUci.${class}
      COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/chess_uci_test.py ${CMAKE_BINARY_DIR}/bin $<TARGET_FILE:fake_engine> ${class})
    set_tests_properties(ChessUci.${class} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
  endforeach()
  set_tests_properties(ChessUci.Games PROPERTIES COST 30)
  foreach(class Pipes Terminal)
    add_test(NAME ChessPlay.${class}
      COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/chess_terminal_test.py ${CMAKE_BINARY_DIR}/bin ${class})
    set_tests_properties(ChessPlay.${class} PROPERTIES TIMEOUT 1800)
  endforeach()
endif()
