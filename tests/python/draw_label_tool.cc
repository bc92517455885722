// draw_label_tool HEIGHT WIDTH: each line of stdin, drawn by video/draw_text.h on a gray frame, to stdout.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "video/draw_text.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int height = std::atoi(argv[1]), width = std::atoi(argv[2]);
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<uint8_t> frame(static_cast<size_t>(height) * static_cast<size_t>(width), 128);
    tandem::draw_label(frame, height, width, line);
    std::cout.write(reinterpret_cast<const char*>(frame.data()), static_cast<std::streamsize>(frame.size()));
  }
}
