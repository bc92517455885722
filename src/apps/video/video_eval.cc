#include "apps/video/video_eval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "command/ask_worker.h"
#include "command/command.h"
#include "command/sources.h"
#include "runs/run_folder.h"
#include "telemetry/confusion_table.h"
#include "video/metrics/confusion.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double answered_metric(const Json& metrics, const char* name) {
  const Json value = metrics.value(std::string("validation/") + name, Json());
  return value.is_number() ? value.get<double>() : kAbsent;
}

// The cells among a worker's metrics, in the order of classes.
ConfusionTable table_of(const Json& found) {
  NamedValues cells;
  for (const std::string name : found.at("order"))
    if (is_confusion_cell(name)) cells.emplace_back(name, found.at("metrics").at(name).get<double>());
  const std::vector<ConfusionTable> tables = confusion_tables(cells);
  return tables.empty() ? ConfusionTable{} : tables.front();
}

ConfusionMatrix matrix_of(const ConfusionTable& table) {
  std::vector<int64_t> counts;
  for (const double cell : table.cells) counts.push_back(static_cast<int64_t>(cell));
  return {static_cast<int64_t>(table.classes.size()), counts};
}

Json json_of_scores(const ConfusionTable& table, const ClassificationScores& scores) {
  Json classes = Json::object(), confusion = Json::array();
  const size_t n = table.classes.size();
  for (size_t c = 0; c < n; ++c) {
    const ClassScores& one = scores.classes[c];
    classes[table.classes[c]] = {
        {"precision", one.precision}, {"recall", one.recall}, {"f1", one.f1}, {"support", one.support}};
    Json row = Json::array();
    for (size_t p = 0; p < n; ++p) row.push_back(static_cast<int64_t>(table.at(c, p)));
    confusion.push_back(row);
  }
  return {{"class_names", table.classes},
          {"classes", classes},
          {"confusion", confusion},
          {"accuracy", scores.accuracy},
          {"macro", {{"precision", scores.macro_precision}, {"recall", scores.macro_recall}, {"f1", scores.macro_f1}}},
          {"weighted",
           {{"precision", scores.weighted_precision}, {"recall", scores.weighted_recall}, {"f1", scores.weighted_f1}}}};
}

std::string scores_text(const ConfusionTable& table, const ClassificationScores& scores) {
  std::string text = fmt::format("{:<16} {:>9} {:>9} {:>9} {:>9}\n", "class", "precision", "recall", "F1", "clips");
  int64_t all = 0;
  for (size_t c = 0; c < table.classes.size(); ++c) {
    const ClassScores& one = scores.classes[c];
    text += fmt::format("{:<16} {:>9.4f} {:>9.4f} {:>9.4f} {:>9}\n", table.classes[c], one.precision, one.recall,
                        one.f1, one.support);
    all += one.support;
  }
  text += fmt::format("{:<16} {:>9.4f} {:>9.4f} {:>9.4f} {:>9}\n", "macro", scores.macro_precision, scores.macro_recall,
                      scores.macro_f1, all);
  text += fmt::format("{:<16} {:>9.4f} {:>9.4f} {:>9.4f} {:>9}\n\n", "weighted", scores.weighted_precision,
                      scores.weighted_recall, scores.weighted_f1, all);
  text += "true \\ predicted";
  for (const std::string& name : table.classes) text += fmt::format(" {:>9.9}", name);
  text += "\n";
  for (size_t t = 0; t < table.classes.size(); ++t) {
    text += fmt::format("{:<16}", table.classes[t]);
    for (size_t p = 0; p < table.classes.size(); ++p) text += fmt::format(" {:>9}", table.at(t, p));
    text += "\n";
  }
  return text;
}

int run_video_eval(const Command& command) {
  const RunFolder run = RunFolder::find(runs_root(command.arguments), command.subject("last"));
  const WorkerAnswer answer = ask_worker(command, run, nullptr, "evaluated");
  Json found = *answer.found;
  const Json metrics = found.at("metrics");
  const ConfusionTable table = table_of(found);
  const ClassificationScores scores = matrix_of(table).scores();
  for (auto it = found["metrics"].begin(); it != found["metrics"].end();)
    it = is_confusion_cell(it.key()) ? found["metrics"].erase(it) : std::next(it);
  found.erase("order");
  found["run"] = run.id();
  found["dir"] = fs::absolute(run.dir()).string();
  found["checkpoint"] = answer.checkpoint;
  if (!table.classes.empty()) found.update(json_of_scores(table, scores));
  found["loss"] = metrics.at("validation/loss");
  found["segment_f1"] = metrics.at("validation/segment_f1");
  if (command.output.json()) {
    command.output.object(found);
    return 0;
  }
  if (!table.classes.empty()) command.output.data(scores_text(table, scores));
  command.output.data(fmt::format("\naccuracy {:.4f}   macro F1 {:.4f}   segment F1 {:.4f}   loss {:.4f}\n",
                                  answered_metric(metrics, "accuracy"), answered_metric(metrics, "macro_f1"),
                                  answered_metric(metrics, "segment_f1"), answered_metric(metrics, "loss")));
  command.output.say(fmt::format("{} weights of step {}, {} clips of validation, {:.2f} s", answer.checkpoint,
                                 found.at("step").get<int64_t>(), found.at("samples").value("validation", int64_t{0}),
                                 found.at("seconds").get<double>()));
  if (found.at("kind") != found.at("trained_on"))
    command.output.say(fmt::format("trained on {}, evaluated on {}: the last digits may differ",
                                   found.at("trained_on").get<std::string>(), found.at("kind").get<std::string>()));
  return 0;
}

}  // namespace

RecipeVerb video_eval_verb() {
  return {"eval",
          "how good a video classifier is on clips that it never saw: F1, precision, recall, confusion matrix",
          run_video_eval,
          {{"--checkpoint", "which", "best, last or a step [best, where there is one]"},
           {"--device", "device", "where: cpu, cuda:0 [the first GPU, else the CPU]"}},
          {{"eval last --checkpoint best --json", "the best weights of the newest run, as one object"}}};
}

}  // namespace tandem
