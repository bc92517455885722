#include "apps/video/video_predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/video/decoding_bar.h"
#include "base/errors.h"
#include "base/printable.h"
#include "command/ask_worker.h"
#include "command/command.h"
#include "command/out_file.h"
#include "command/scratch.h"
#include "command/sources.h"
#include "recipes/video_settings.h"
#include "runs/run_folder.h"
#include "video/frame_file.h"
#include "video/frames_of_video.h"
#include "video/metrics/segments.h"
#include "video/video_program.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Prediction {
  std::vector<std::string> classes;
  std::vector<int64_t> frames;
  std::vector<double> probability;
  const std::string& name(size_t frame) const { return classes.at(static_cast<size_t>(frames[frame])); }
};

VideoProgram video_program() {
  if (auto program = VideoProgram::find()) return *program;
  throw ConfigError("this build can't read videos", "there is no tandem-video beside it: it was built without FFmpeg",
                    "build with FFmpeg's libraries (TANDEM_FFMPEG=on)");
}

bool is_frame_file(const fs::path& video) { return video.extension() == FrameFile::kEnding; }

// The video's frames, scaled as the run's were, into a file: all of them before the first one is labelled.
int64_t decode_into(const VideoProgram& program, const fs::path& video, const fs::path& file, int32_t size,
                    const Command& command) {
  const VideoFacts facts = program.probe(video);
  if (facts.frames > 0)
    command.output.say(fmt::format("decoding {} frames of {} x {}: {} in {} until they are labelled", facts.frames,
                                   size, size, bytes_text(static_cast<uint64_t>(facts.frames) * size * size),
                                   printable(file.parent_path().parent_path().string())));
  if (facts.rotation != 0)
    command.output.warn(fmt::format("{}: {}", printable(video.string()), rotation_words(facts.rotation)));
  std::optional<DecodingBar> bar(command.output);
  PrepareProgress progress{.videos = 1, .frames = facts.frames};
  FrameFileWriter writer(file, size, size);
  const DecodedVideo decoded = program.decode(video, size, size, [&](std::span<const uint8_t> frame) {
    writer.add(frame);
    ++progress.frames_done;
    bar->show(progress);
    return true;
  });
  bar.reset();
  if (decoded.frames == 0)
    throw ConfigError(fmt::format("{} has no frame that can be decoded", printable(video.string())), decoded.trouble,
                      "look whether it plays; copy or encode it again");
  if (!decoded.trouble.empty()) command.output.warn(fmt::format("{}: {}", printable(video.string()), decoded.trouble));
  writer.finish({.name = video.filename().string(), .scaling = "area"});
  return decoded.frames;
}

// Of what `tandem data prepare video` made: a machine without FFmpeg predicts from it.
int64_t verified_frames(const fs::path& file) {
  const FrameFile frames = FrameFile::open(file);
  frames.verify();
  return frames.frames();
}

std::string csv_of(const Prediction& prediction) {
  std::string csv = "Frame,Action,Probability\n";
  for (size_t f = 0; f < prediction.frames.size(); ++f)
    csv += fmt::format("{},{},{:.4f}\n", f, prediction.name(f), prediction.probability[f]);
  return csv;
}

// Frames and segments of each class, most frames first.
Json summary_of(const Prediction& prediction) {
  std::vector<std::pair<int64_t, int64_t>> counts(prediction.classes.size());
  for (const int64_t c : prediction.frames) ++counts[static_cast<size_t>(c)].first;
  for (const ActionSegment& segment : segments_of(prediction.frames))
    ++counts[static_cast<size_t>(segment.label)].second;
  std::vector<Json> all;
  for (size_t c = 0; c < counts.size(); ++c)
    if (counts[c].first > 0)
      all.push_back({{"class", prediction.classes[c]}, {"frames", counts[c].first}, {"segments", counts[c].second}});
  std::ranges::stable_sort(all, [](const Json& a, const Json& b) { return a.at("frames") > b.at("frames"); });
  return all;
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code none;
  if (fs::equivalent(a, b, none)) return true;
  const fs::path one = fs::weakly_canonical(fs::absolute(a), none);
  return !one.empty() && one == fs::weakly_canonical(fs::absolute(b), none);
}

// An overlay is an mp4, whatever its name, so the name has to say so; and it replaces nothing: a video may be the only
// one of its kind.
void check_overlay(const std::string& overlay, const std::string& video) {
  const std::string shown = printable(overlay);
  std::string ending = fs::path(overlay).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  if (is_frame_file(video))
    throw ConfigError(fmt::format("--overlay {} for {}", shown, printable(video)),
                      "these are frames as a net sees them, and labels are drawn on the video itself",
                      "name the video in place of its frames");
  if (ending != ".mp4" && ending != ".m4v")
    throw ConfigError(fmt::format("--overlay {}", shown),
                      ending.empty() ? "the labelled copy is an mp4, and this name has no ending"
                                     : fmt::format("the labelled copy is an mp4, and no {}", printable(ending)),
                      "name a file that ends with .mp4");
  std::error_code none;
  if (fs::exists(fs::symlink_status(overlay, none)))
    throw ConfigError(fmt::format("--overlay {} is there already", shown), "a video is never replaced",
                      "take it away, or name another file");
}

// What is written replaces neither what is read nor the other file that is written.
void check_files(const std::string& video, const std::string& csv, const std::string& overlay,
                 const std::string& pose) {
  if (!fs::is_regular_file(video))
    throw ConfigError(fmt::format("there is no video {}", printable(video)), "it is no file", "name a video file");
  check_out_file(csv, "--csv");
  if (!overlay.empty()) check_out_file(overlay, "--overlay");
  const auto apart = [](const std::string& out, const char* flag, const std::string& other, const std::string& what) {
    if (!out.empty() && out != "-" && !other.empty() && same_file(out, other))
      throw ConfigError(fmt::format("{} names {}", flag, what), "it would be replaced",
                        "give one of them another name");
  };
  apart(csv, "--csv", video, "the video itself");
  apart(overlay, "--overlay", video, "the video itself");
  apart(csv, "--csv", pose, "the pose file itself");
  apart(overlay, "--overlay", pose, "the pose file itself");
  apart(overlay, "--overlay", csv == "-" ? "" : csv, "the file of --csv");
  if (!overlay.empty()) check_overlay(overlay, video);
}

int run_predict(const Command& command) {
  const std::vector<std::string>& words = command.arguments.subjects;
  if (words.size() < 2)
    throw ConfigError("predict needs a run and a video", fmt::format("{} of the two words are here", words.size()),
                      fmt::format("write `{} predict last video.mp4 --csv out.csv`", command.context.program));
  const std::string &video = words[1], csv = command.arguments.text("csv");
  const std::string overlay = command.arguments.text("overlay"), pose = command.arguments.text("pose");
  refuse_csv_with_json(csv, command.output.json());
  check_files(video, csv, overlay, pose);
  const RunFolder run = RunFolder::find(runs_root(command.arguments), words[0]);
  const ResolvedRecipe recipe = resolve_run(run.recipe_toml(), command.arguments, command.context, command.output);
  const auto* const settings = dynamic_cast<const VideoSettings*>(recipe.settings.get());
  if (!settings)
    throw ConfigError(fmt::format("{} is a run of {}", run.id(), recipe.name), "it labels no videos",
                      "name a run of video");
  const Scratch scratch("predict");
  const fs::path frames = is_frame_file(video) ? fs::absolute(video) : scratch.path() / "video.frames";
  const int64_t count =
      is_frame_file(video) ? verified_frames(frames)
                           : decode_into(video_program(), video, frames, static_cast<int32_t>(settings->size), command);
  const WorkerAnswer answer = ask_worker(command, run,
                                         {{"ask", "predict"},
                                          {"frames", frames.string()},
                                          {"poses", pose.empty() ? "" : fs::absolute(pose).string()},
                                          {"rows", std::max<int64_t>(16, settings->batch_size / 2)}},
                                         "asked");
  const Json& said = answer.found->at("answer");
  const Prediction prediction{said.at("classes"), said.at("predicted"), said.at("probability")};
  if (!csv.empty()) write_out_file(csv, csv_of(prediction), "--csv");
  if (!overlay.empty())
    overlay_video(video_program(), video, overlay, [&](int64_t frame) {
      const auto f = static_cast<size_t>(frame);
      if (f >= prediction.frames.size()) return std::string();
      return fmt::format("{} {:.2f}", prediction.name(f), prediction.probability[f]);
    });
  const Json summary = summary_of(prediction);
  const double seconds = said.at("seconds");
  if (command.output.json()) {
    command.output.object({{"run", run.id()},
                           {"checkpoint", answer.checkpoint},
                           {"step", answer.found->at("step")},
                           {"video", video},
                           {"frames", count},
                           {"seconds", seconds},
                           {"frames_per_second", said.at("frames_per_second")},
                           {"classes", summary},
                           {"csv", csv.empty() ? Json() : Json(csv)},
                           {"overlay", overlay.empty() ? Json() : Json(overlay)}});
    return 0;
  }
  std::string table = fmt::format("{:<16} {:>9} {:>9}\n", "class", "frames", "segments");
  for (const Json& one : summary)
    table += fmt::format("{:<16} {:>9} {:>9}\n", one.at("class").get<std::string>(), one.at("frames").get<int64_t>(),
                         one.at("segments").get<int64_t>());
  if (csv != "-") command.output.data(table);
  command.output.say(fmt::format("{} frames in {:.1f} s ({:.0f} frames/s), {} weights of step {}", count, seconds,
                                 static_cast<double>(count) / std::max(seconds, 1e-9), answer.checkpoint,
                                 answer.found->at("step").get<int64_t>()));
  if (!csv.empty() && csv != "-") command.output.say("frames  " + csv);
  if (!overlay.empty()) command.output.say("overlay " + overlay);
  return 0;
}

}  // namespace

RecipeVerb video_predict_verb() {
  RecipeVerb verb{"predict", "what happens in each frame of a video, as a table, a CSV and labels drawn on the frames",
                  run_predict};
  verb.flags = {{"--csv", "file", "a line for each frame: its number, the action, its probability; -: stdout"},
                {"--overlay", "file", "a copy of the video (.mp4) with the labels drawn on its frames"},
                {"--pose", "file", "DeepLabCut's file of the video, for a run with poses"},
                {"--checkpoint", "which", "best, last or a step [best, where there is one]"},
                {"--device", "device", "where: cpu, cuda:0 [the first GPU, else the CPU]"}};
  verb.examples = {{"predict last mouse.mp4 --csv actions.csv --overlay labelled.mp4", "label every frame"}};
  verb.subject = "words";
  verb.subject_help = "the run (id, folder or last) and the video, or its file of frames";
  verb.most_subjects = 2;
  return verb;
}

}  // namespace tandem
