# Tests of the tree itself: the lint, that the lint can fail, and that an installed tandem serves a user's own program.
if(NOT TANDEM_TESTS)
  return()
endif()
add_test(NAME lint COMMAND ${PROJECT_SOURCE_DIR}/scripts/lint.sh)
add_test(NAME lint_stops_every_planted_line COMMAND ${PROJECT_SOURCE_DIR}/tests/lint_test.sh)
set_tests_properties(lint lint_stops_every_planted_line PROPERTIES TIMEOUT 300)
add_test(NAME setup_says_what_is_wrong COMMAND ${PROJECT_SOURCE_DIR}/tests/setup_test.sh)
set_tests_properties(setup_says_what_is_wrong PROPERTIES TIMEOUT 120)
if(TANDEM_TORCH AND NOT TANDEM_SANITIZE AND EXISTS ${PROJECT_SOURCE_DIR}/examples/own_model/CMakeLists.txt)
  add_test(NAME install_and_find_package
    COMMAND ${PROJECT_SOURCE_DIR}/tests/install_test.sh ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND} ${CMAKE_MAKE_PROGRAM})
  set_tests_properties(install_and_find_package PROPERTIES TIMEOUT 600)
endif()
