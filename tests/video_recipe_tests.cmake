# Metrics of frames and segments beside scikit-learn's, from PyPI. Exit code 77 means skipped: there is no such package.
add_executable(video_metrics_tool python/video_metrics_tool.cc)
target_compile_options(video_metrics_tool PRIVATE ${TANDEM_CXX_FLAGS})
target_link_libraries(video_metrics_tool PRIVATE tandem_video_metrics fmt::fmt nlohmann_json::nlohmann_json)
set_target_properties(video_metrics_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME VideoMetrics.AgreeWithScikitLearn
  COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/video_metrics_test.py $<TARGET_FILE:video_metrics_tool>)
set_tests_properties(VideoMetrics.AgreeWithScikitLearn PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
