# Videos as data, as a whole: FFmpeg's program makes the videos and judges the frames. Without it they are skipped.
if(TANDEM_TESTS AND TARGET tandem)
  foreach(class Frames Cache BadVideos)
    add_test(NAME VideoData.${class}
      COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/video_data_test.py ${CMAKE_BINARY_DIR}/bin ${class})
    set_tests_properties(VideoData.${class} PROPERTIES TIMEOUT 1800 SKIP_REGULAR_EXPRESSION "SKIPPED: ")
  endforeach()
endif()
# What the label of a frame looks like: for video_test.py.
add_executable(draw_label_tool python/draw_label_tool.cc)
target_compile_options(draw_label_tool PRIVATE ${TANDEM_CXX_FLAGS})
target_link_libraries(draw_label_tool PRIVATE tandem_video)
set_target_properties(draw_label_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
