# Videos as data, as a whole: FFmpeg's program makes the videos and judges the frames. Without it they are skipped.
if(TANDEM_TESTS AND TARGET tandem)
  foreach(class Frames Cache BadVideos)
    add_test(NAME VideoData.${class}
      COMMAND ${TANDEM_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/python/video_data_test.py ${CMAKE_BINARY_DIR}/bin ${class})
    set_tests_properties(VideoData.${class} PROPERTIES TIMEOUT 1800)
  endforeach()
endif()
