#include "cli/app.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <set>
#include <stdexcept>

#include "base/errors.h"
#include "cli/flag_clash.h"
#include "cli/gpu_flags.h"
#include "cli/runs_removal.h"
#include "cli/verbs.h"

namespace tandem {
namespace {

std::string first_name(const std::string& names) { return names.substr(0, names.find(',')); }

class AppBuilder {
 public:
  AppBuilder(const CliContext& context, Arguments& arguments)
      : context_(context),
        arguments_(arguments),
        program_(context.program),
        recipe_(context.example()),
        setting_flags_(setting_flags(context.recipes)) {}

  std::unique_ptr<CLI::App> build() {
    auto root = std::make_unique<CLI::App>(
        "trains models on all your devices; the result depends on the recipe, never on the machines", program_);
    root->set_help_flag("-h,--help", "this text");
    root->add_flag("--version", arguments_.version, "version");
    root->require_subcommand(0, 1);
    common(root.get());
    local_rank(root.get());  // torch.distributed.launch puts it before everything
    root->footer(examples({{"train " + recipe_, "a new run"},
                           {"resume last", "go on with the newest run"},
                           {"runs", "what was run, and how it ended"},
                           {"train " + recipe_ + " --help", "flags, with the values they have now"}}));
    add_train(root.get());
    add_resume(root.get());
    add_members(root.get());
    add_runs(root.get());
    add_weights(root.get());
    add_report(root.get());
    add_explain(root.get());
    add_verbs(root.get());
    add_plan(root.get());
    add_bench(root.get());
    add_monitor(root.get());
    add_guard(root.get());
    add_machine(root.get());
    add_config(root.get());
    add_small(root.get());
    return root;
  }

 private:
  std::string examples(const std::vector<CommandExample>& lines) const {
    size_t width = 0;
    for (const auto& [command, meaning] : lines) width = std::max(width, command.size() + program_.size() + 1);
    std::string text;
    for (const auto& [command, meaning] : lines)
      text += fmt::format("  {:<{}}   {}\n", program_ + " " + command, width, meaning);
    return text;
  }

  void common(CLI::App* app) {
    app->add_flag("--json", arguments_.json, "one JSON object on stdout (schema 1)");
    app->add_flag("-q,--quiet", arguments_.quiet, "no talk, warnings and errors only");
    app->add_flag("-v,--verbose", arguments_.verbose, "more talk");
    app->add_flag("--no-color", arguments_.no_color, "no colour (also NO_COLOR=1, TERM=dumb)");
    app->add_flag("--no-input", arguments_.no_input, "never ask; what removes runs then needs --yes");
    app->add_option("--runs-root", arguments_.runs_root, "folder of all runs")->type_name("dir");
  }

  CLI::App* command(CLI::App* parent, const std::string& name, const std::string& summary,
                    std::vector<CommandExample> lines) {
    if (!parent->get_parent() && verbs_.contains(name)) refuse_verb(name);
    CLI::App* app = parent->add_subcommand(name, summary);
    app->set_help_flag("-h,--help", "this text");
    for (const RecipeInfo& recipe : context_.recipes)
      for (const CommandExample& line : recipe.examples)
        if (line.first.starts_with(name + " ")) lines.push_back(line);
    app->footer(examples(lines));
    common(app);
    return app;
  }

  CLI::Option* subject(CLI::App* app, const std::string& name, const std::string& help, int least, int most) {
    return app->add_option(name, arguments_.subjects, help)->expected(least, most)->type_name("");
  }

  void override_option(CLI::App* app, const SettingFlag& flag) {
    const std::string source = first_name(flag.names), key = flag.key;
    app->add_option_function<std::string>(
           flag.names,
           [&a = arguments_, key, source](const std::string& value) {
             a.overrides.push_back({key, value, source});
           },
           flag.help)
        ->type_name(flag.value_name)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

  // Settings by flag and by --set, for train, resume and config show.
  void settings(CLI::App* app) {
    for (const SettingFlag& flag : setting_flags_)
      if (flag.on != SettingFlag::On::kTrainOnly) override_option(app, flag);
    auto* devices = app->get_option("--devices");
    auto* gpus = app->add_option_function<std::string>(
        "--gpus",
        [&a = arguments_](const std::string& text) {
          a.overrides.push_back({"devices", devices_of_gpus(text), "--gpus"});
        },
        "how many CUDA devices (4), or which (0,2); 4, is number 4 alone, all is every one");
    gpus->type_name("n or list")->excludes(devices);
    app->add_option_function<std::string>(
           "--num-gpus",
           [&a = arguments_](const std::string& count) {
             a.overrides.push_back({"devices", devices_of_count(count), "--num-gpus"});
           },
           "the first n CUDA devices; -1: all")
        ->type_name("n")
        ->excludes(devices)
        ->excludes(gpus);
    set_option(app);
  }

  void set_option(CLI::App* app) {
    app->add_option_function<std::vector<std::string>>(
           "--set", [&a = arguments_](const std::vector<std::string>& pairs) { add_pairs(a, pairs); },
           "one line of the recipe, repeatable: --set clip_norm=1")
        ->type_name("key=value")
        ->allow_extra_args(false);
  }

  // Callbacks run when the line is parsed, after the builder is gone: they keep the arguments, never `this`.
  static void add_pairs(Arguments& arguments, const std::vector<std::string>& pairs) {
    for (const std::string& pair : pairs) {
      const size_t equals = pair.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw ConfigError(fmt::format("--set {}: no key and value", pair), "--set takes one line of a recipe",
                          "write --set key=value, as in `--set optimizer.learning_rate=0.01`");
      }
      arguments.overrides.push_back({pair.substr(0, equals), pair.substr(equals + 1), "--set"});
    }
  }

  void add_train(CLI::App* root) {
    auto* app = command(root, "train", "trains a recipe in a new run",
                        {{"train " + recipe_, "a new run on every device"},
                         {"train " + recipe_ + " --steps 500 --lr 0.01", "other settings, by flag"},
                         {"train my.toml --set clip_norm=1", "a recipe file of your own"},
                         {"train " + recipe_ + " --resume", "go on from its newest whole checkpoint"},
                         {"train " + recipe_ + " --dry-run", "show settings and plan, train nothing"}});
    subject(app, "recipe", "name of a recipe, or a .toml file that names one", 0, 1);
    app->add_option("--run-dir,--save-dir,--output-dir", arguments_.run_dir, "the run's own folder, new or empty")
        ->type_name("dir");
    app->add_option("--resume,--checkpoint", arguments_.resume,
                    "go on with a run: last, an id, a folder or a checkpoint")
        ->type_name("[run]");
    const bool goes_on = std::ranges::any_of(context_.recipes, [](const RecipeInfo& r) { return bool(r.train_from); });
    if (goes_on)
      app->add_option("--from", arguments_.from,
                      "go on learning from a trained run, in a new one that replaces it if it is not worse")
          ->type_name("run");
    for (const SettingFlag& flag : setting_flags_)
      if (flag.on == SettingFlag::On::kTrainOnly) override_option(app, flag);
    if (goes_on) {
      app->add_flag("--full", arguments_.full, "with --from: all of the training again, not an increment");
      app->add_flag("--print-timer", arguments_.print_timer,
                    "with --from: print a systemd timer and cron lines for both, and stop");
    }
    app->add_flag("--quick", arguments_.quick, "a short training, by the recipe's own settings for one");
    app->add_flag("--dry-run", arguments_.dry_run, "show the resolved recipe and the plan, and stop");
    local_rank(app);
    settings(app);
  }

  void local_rank(CLI::App* app) {
    app->add_option("--local-rank", arguments_.local_rank,
                    "as torch.distributed.launch gives it; LOCAL_RANK goes before")
        ->type_name("n");
  }

  void add_resume(CLI::App* root) {
    auto* app = command(root, "resume", "goes on with a run, to the same bits as if it had never stopped",
                        {{"resume last", "the newest run"},
                         {"resume " + recipe_ + "-20261115 --steps 1000", "by the start of its id, with a later end"},
                         {"resume runs/mine --devices cpu:2", "by folder, on other devices"}});
    subject(app, "run", "id, start of an id, folder, or last", 0, 1);
    app->add_flag("--dry-run", arguments_.dry_run, "show the resolved recipe and the plan, and stop");
    local_rank(app);
    settings(app);
  }

  void add_members(CLI::App* root) {
    auto* join = command(root, "join", "adds workers to a run that is going on; its bits stay the same",
                         {{"join last --devices cpu:1", "one more CPU worker"},
                          {"join " + recipe_ + "-20261115 --devices cuda:2", "a GPU that became free"}});
    subject(join, "run", "id, start of an id, folder, or last", 0, 1);
    for (const SettingFlag& flag : setting_flags_)
      if (flag.key == "devices") override_option(join, flag);
    auto* leave = command(root, "leave", "takes a worker out of a run that is going on; its bits stay the same",
                          {{"leave last --rank 2", "its shards go to the others at the next step"}});
    subject(leave, "run", "id, start of an id, folder, or last", 0, 1);
    leave->add_option("--rank", arguments_.rank, "the worker's number")->type_name("n");
  }

  void add_runs(CLI::App* root) {
    auto* runs = command(root, "runs", "what was run: list, show, compare, best, rm, prune, rebuild",
                         {{"runs", "all runs, newest first"},
                          {"runs show last", "one run"},
                          {"runs compare last a1b2c3", "settings that differ, and figures"},
                          {"runs best accuracy", "the run with the best value"}});
    runs->require_subcommand(0, 1);
    auto* list =
        command(runs, "list", "all runs, newest first",
                {{"runs list --recipe " + recipe_, "of one recipe"}, {"runs list -q", "ids only, for scripts"}});
    for (CLI::App* app : {runs, list}) {
      app->add_option("--recipe", arguments_.filter_recipe, "of this recipe only")->type_name("name");
      app->add_option("--status", arguments_.filter_status, "running, done, stopped, failed or died")
          ->type_name("word");
      app->add_option("--limit", arguments_.limit, "at most n")->type_name("n");
    }
    subject(command(runs, "show", "one run: status, figures, settings", {{"runs show last", "the newest"}}), "run",
            "id, start of an id, folder, or last", 0, 1);
    subject(command(runs, "compare", "two runs side by side", {{"runs compare a1b2c3 last", "by id and by age"}}),
            "run", "two runs", 0, 2);
    auto* best =
        command(runs, "best", "the run with the best value of a metric",
                {{"runs best loss", "the lowest loss"}, {"runs best accuracy --recipe " + recipe_, "of one recipe"}});
    subject(best, "metric", "loss, or a metric of the recipe", 0, 1);
    best->add_option("--recipe", arguments_.filter_recipe, "of this recipe only")->type_name("name");
    best->add_option("--order", arguments_.order, "min or max, where the name does not tell")
        ->type_name("word")
        ->check(CLI::IsMember({"min", "max"}));
    add_removal_commands(arguments_, [this, runs](const auto& name, const auto& summary, auto lines) {
      return command(runs, name, summary, std::move(lines));
    });
    command(runs, "rebuild", "makes the index anew from the folders",
            {{"runs rebuild", "if it was lost or is in doubt"}});
  }

  void add_weights(CLI::App* root) {
    auto* digest = command(root, "digest", "SHA-256 of the weights, and the kind of machine that made them",
                           {{"digest last", "the newest checkpoint of the newest run"},
                            {"digest model.safetensors", "any safetensors file"}});
    subject(digest, "path", "run, checkpoint folder or .safetensors file", 0, 1);
    digest->add_option("--agent", arguments_.agent, "of this agent alone")->type_name("name");
    auto* exported = command(root, "export", "writes the weights of a run to one safetensors file",
                             {{"export last", "newest checkpoint, into this folder"},
                              {"export last --step 200 --output net.safetensors", "one checkpoint, by name"}});
    subject(exported, "run", "run or checkpoint folder", 0, 1);
    exported->add_option("--agent", arguments_.agent, "this agent alone, its weights named as in a run of its own")
        ->type_name("name");
    exported->add_option("-o,--output", arguments_.output, "file to write [<run>-step-<n>.safetensors]")
        ->type_name("file");
    exported->add_option("--step", arguments_.step, "the checkpoint of this step [the newest]")->type_name("n");
    exported->add_flag("--force", arguments_.force, "replace the file if it is there");
  }

  void add_report(CLI::App* root) {
    auto* app = command(root, "report", "writes a run's report.html: curves, time per phase, settings",
                        {{"report last", "into the run's folder"}, {"report last --output page.html", "elsewhere"}});
    subject(app, "run", "id, start of an id, folder, or last", 0, 1);
    app->add_option("-o,--output", arguments_.output, "file to write [report.html in the run's folder]")
        ->type_name("file");
  }

  void add_explain(CLI::App* root) {
    auto* app = command(root, "explain", "why a run is slow: shares of its step, causes, and the remedy for each",
                        {{"explain", "the newest run, while it goes on or after"},
                         {"explain " + recipe_ + "-20261115", "another one"},
                         {"explain last --json", "for scripts: {\"shares\": {...}, \"findings\": [...]}"},
                         {"explain last -q", "one line"}});
    subject(app, "run", "id, start of an id, folder, or last", 0, 1);
  }

  // What the program and its recipes bring. Their mistakes are the program's author's, who sees them at the first
  // start.
  void add_verbs(CLI::App* root) {
    static const std::set<std::string> kept = {"help", "work", "describe"};  // cli/program.cc
    for (const RecipeVerb& verb : verbs_of(context_)) {
      if (kept.contains(verb.name) || find_command(*root, {verb.name}) != root) refuse_verb(verb.name);
      try {
        auto* app = command(root, verb.name, verb.summary, verb.examples);
        if (!verb.subject.empty())
          subject(app, verb.subject, verb.subject_help, 0, verb.most_subjects)->type_name(verb.usage);
        for (const VerbFlag& flag : verb.flags) verb_flag(app, flag);
      } catch (const CLI::ConstructionError& error) {
        throw std::logic_error(fmt::format("{}: {}", whose(verb.name), error.what()));
      }
      verbs_.insert(verb.name);
    }
  }

  [[noreturn]] void refuse_verb(const std::string& name) const {
    throw std::logic_error(fmt::format("{} is a command of every program: give it another name", whose(name)));
  }

  std::string whose(const std::string& verb) const {
    const std::string recipes = recipes_with(context_.recipes, verb);
    return recipes.empty() ? fmt::format("the verb `{}`", verb)
                           : fmt::format("the verb `{}` of recipe {}", verb, recipes);
  }

  void verb_flag(CLI::App* app, const VerbFlag& flag) {
    const std::string name = first_long_name(flag.names);
    std::map<std::string, std::string>& flags = arguments_.verb_flags;
    const auto keep = [&flags, name](const std::string& value) { flags[name] = value; };
    const auto keep_whole = [&flags, name](const int64_t& value) { flags[name] = std::to_string(value); };
    if (flag.kind == VerbFlag::Kind::kSwitch)
      app->add_flag_callback(
          flag.names, [keep] { keep("true"); }, flag.help);
    else if (flag.kind == VerbFlag::Kind::kWhole)
      app->add_option_function<int64_t>(flag.names, keep_whole, flag.help)->type_name(flag.value_name);
    else
      app->add_option_function<std::string>(flag.names, keep, flag.help)->type_name(flag.value_name);
  }

  void add_plan(CLI::App* root) {
    auto* app = command(root, "plan", "forecasts speed, time, memory, energy and money on 1 to n devices",
                        {{"plan " + recipe_, "on the devices at hand; measures for up to a minute, once"},
                         {"plan " + recipe_ + " --batch 96,192,384 --json", "by batch, for scripts"},
                         {"plan --make-prices", "a price list to edit"}});
    subject(app, "recipe", "name of a recipe, or a .toml file that names one", 0, 1);
    PlanArguments& plan = arguments_.plan;
    const auto list = [&](const char* name, std::string& to, const char* help, const char* type) {
      app->add_option(name, to, help)->type_name(type)->check([](const std::string& text) {
        return text.empty() ? "nothing is named" : "";  // of a variable that is not set, say: not the same as no flag
      });
    };
    list("--hardware", plan.hardware, "GPUs that are not here: 8xH100, 3060ti+2x3070", "cards");
    list("--gpus", plan.gpus, "numbers of devices: 1..8, 4 or 1,2,4 [all there are]", "counts");
    list("--batch", plan.batch, "batches, the first for the main table [the recipe's, and twice that]", "list");
    list("--precision", plan.precision, "fp32, tf32, bf16, fp16, several, or all [the recipe's]", "list");
    app->add_option("--price-kwh", plan.price_kwh, "what a kilowatt-hour costs [of the price list]")->type_name("x");
    app->add_option("--prices", plan.prices, "the price list [~/.config/tandem/prices.toml, else the guides' prices]")
        ->type_name("file");
    app->add_flag("--quick", arguments_.quick, "the recipe's short training, as `train --quick`");
    app->add_flag("--make-prices", plan.make_prices, "write a price list to edit, and stop");
    app->add_option("--budget", plan.budget_s, "seconds of measuring, about [60]")->type_name("s");
    app->add_flag("--calibrate", plan.calibrate, "measure again, whatever was measured before");
    app->add_option("--csv", arguments_.csv, "the table as a file too; - for stdout alone")->type_name("file");
    for (const SettingFlag& flag : setting_flags_)
      if (flag.on == SettingFlag::On::kPlanToo) override_option(app, flag);
    set_option(app);
  }

  void add_bench(CLI::App* root) {
    auto* app = command(root, "bench", "measures training on the devices at hand",
                        {{"bench", "every recipe, 1 to n devices, three batches each"}});
    subject(app, "recipe", "recipes to measure [all of them]", 0, 64);
    app->add_option("--devices,--device", arguments_.bench_devices, "which to use, as train takes them [auto]")
        ->type_name("list");
    app->add_option("--batch", arguments_.plan.batch, "batches [half, whole and double of the recipe's]")
        ->type_name("list");
    app->add_flag("--quick", arguments_.quick, "two short repetitions");
    app->add_option("--rounds,--repeat", arguments_.repeat, "repetitions [3]")->type_name("n");
    app->add_option("--csv", arguments_.csv, "the table as a file too; - for stdout alone")->type_name("file");
    app->add_option("--plot", arguments_.plot, "a page with plots")->type_name("file");
    app->add_flag("--baselines,--rivals", arguments_.baselines, "PyTorch's own loop beside it, where Python has torch");
    set_option(app);
  }

  void add_monitor(CLI::App* root) {
    MonitorArguments& m = arguments_.monitor;
    auto* app = command(root, "monitor", "GPUs and runs as they are now: in the terminal, as a page, for scripts",
                        {{"monitor", "in this terminal; q ends it"},
                         {"monitor --web", "a page in the browser; its address is printed"},
                         {"monitor --snapshot", "once, as text"},
                         {"monitor --json --interval 1", "an object a line, each second"},
                         {"monitor --csv --interval 1 > gpus.csv", "a table that grows"},
                         {"monitor --prometheus", "Prometheus' text; --web serves it as /metrics"}});
    subject(app, "run", "these runs only: id, start of an id, folder, or last [all that go on here]", 0, 64);
    auto* snapshot = app->add_flag("--snapshot", m.snapshot, "text, once");
    auto* csv = app->add_flag("--csv", m.csv, "a table: a line for the machine, each GPU, each run");
    auto* prometheus = app->add_flag("--prometheus", m.prometheus, "Prometheus' text format, once");
    auto* web = app->add_flag("--web", m.web, "serve a page instead, protected by a token");
    auto* json = app->get_option("--json");
    for (auto* a : {snapshot, csv, prometheus, web, json})
      for (auto* b : {snapshot, csv, prometheus, web, json})
        if (a != b && !(std::set{a, b} == std::set{snapshot, json})) a->excludes(b);  // JSON, once, is one answer
    app->add_option("--interval", m.interval, "seconds between looks [1]; --json, --csv and --snapshot go on by it")
        ->type_name("s");
    app->add_option("--count", m.count, "with --interval: end after n looks")->type_name("n");
    app->add_option("--port", m.port, "of --web [a free one]")->type_name("n");
    app->add_option("--host", m.host, "of --web: where it listens [127.0.0.1]")->type_name("address");
    app->add_option("--token-file", m.token_file, "of --web: keep the token here, for Prometheus say")
        ->type_name("file");
    app->add_option("--history", m.history, "where it is kept [~/.local/state/tandem]")->type_name("file");
    app->add_flag("--no-history", m.no_history, "keep none");
  }

  void add_guard(CLI::App* root) {
    auto* guard = command(root, "guard", "watches heat and power of all GPUs, and acts; every run has one inside",
                          {{"guard", "names what is wrong; raises the fans of a hot GPU"},
                           {"guard --power 80%", "... and may lower its power limit, down to 80 %"},
                           {"guard set 0=180W,1=200W", "power limits that stay until restored"},
                           {"guard status", "temperatures, limits, and what is wrong"},
                           {"guard restore", "power limits and fans as they were"}});
    guard->require_subcommand(0, 1);
    guard->add_option("--power", arguments_.power, "how far a hot GPU's limit may be lowered: 80%, 180W [not at all]")
        ->type_name("limit");
    guard->add_option("--interval", arguments_.interval, "time between readings [1]")->type_name("s");
    guard->add_option("--target", arguments_.target, "good to this, warning 5 above it, acting 10 above it [80]")
        ->type_name("C");
    guard->add_option("--for", arguments_.for_time, "ends after this time: 90s, 10m, 2h [on Ctrl-C]")
        ->type_name("time");
    auto* set = command(guard, "set", "sets power limits; they stay until `guard restore` or a reboot",
                        {{"guard set 0=180W,1=200W", "by watts"}, {"guard set 0=80%", "of its default"}});
    subject(set, "limits", "GPU=watts, separated by commas", 1, 64);
    command(guard, "status", "temperatures, limits, what is wrong, and who holds what",
            {{"guard status --json", "for scripts"}});
    command(guard, "restore", "puts power limits and fans back as they were found",
            {{"guard restore", "after `guard set`, or if a guard and its watchdog were both killed"}});
  }

  void add_machine(CLI::App* root) {
    auto* doctor = command(root, "doctor", "checks this machine: driver, GPUs, libraries, limits, disk, and a real sum",
                           {{"doctor", "a verdict a line, with what to do; under 5 s"},
                            {"doctor --bandwidth", "and how fast workers exchange data"},
                            {"doctor --report report.md", "all of it in a file for a bug report, without secrets"}});
    doctor
        ->add_option("--report", arguments_.report,
                     "file to write for a bug report; names, addresses and secrets are taken out")
        ->type_name("file");
    doctor->add_flag("--bandwidth", arguments_.bandwidth, "measure a sum over the workers, with nccl-tests' columns");
    auto* gpus = command(root, "gpus", "the GPUs of this machine: memory, cores, bandwidth, power limit",
                         {{"gpus", "one line a GPU, and all together"},
                          {"gpus --compare 4090", "beside another GPU; also 8xH100, 3060ti+2x3070"},
                          {"gpus --json", "every value the driver gives"}});
    gpus->add_option("--compare", arguments_.compare, "GPU or GPUs to set beside them")->type_name("cards");
  }

  void add_config(CLI::App* root) {
    auto* config = command(root, "config", "shows settings and where they come from",
                           {{"config show --origin " + recipe_, "every value and what set it"}});
    config->require_subcommand(0, 1);
    auto* show = command(config, "show", "the resolved settings of a recipe",
                         {{"config show " + recipe_, "as TOML, to copy into a file"},
                          {"config show --origin " + recipe_, "every value and what set it"}});
    subject(show, "recipe", "name of a recipe, or a .toml file", 0, 1);
    show->add_flag("--origin", arguments_.origin, "tell what set each value");
    settings(show);
  }

  void add_small(CLI::App* root) {
    auto* recipes =
        command(root, "recipes", "the recipes this program knows", {{"recipes", "names and what they train"}});
    recipes->require_subcommand(0, 1);
    command(recipes, "list", "names and what they train", {{"recipes list --json", "for scripts"}});
    subject(command(root, "completion", "prints shell completion",
                    {{"completion bash > ~/.local/share/bash-completion/completions/" + program_, "bash"},
                     {"completion zsh > ~/.zfunc/_" + program_, "zsh"},
                     {"completion fish > ~/.config/fish/completions/" + program_ + ".fish", "fish"}}),
            "shell", "bash, zsh or fish", 1, 1)
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    command(root, "version", "version of program, formats and build", {{"version --json", "for bug reports"}});
  }

  const CliContext& context_;
  Arguments& arguments_;
  std::string program_, recipe_;
  std::vector<SettingFlag> setting_flags_;
  std::set<std::string> verbs_;  // added so far
};

}  // namespace

std::unique_ptr<CLI::App> make_app(const CliContext& context, Arguments& arguments) {
  try {
    return AppBuilder(context, arguments).build();
  } catch (const CLI::OptionAlreadyAdded& error) {
    const std::string clash = flag_clash(context);
    throw std::logic_error(clash.empty() ? error.what() : clash);
  }
}

const CLI::App* find_command(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  for (const std::string& word : words) {
    const CLI::App* next = nullptr;
    for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_name() == word) next = sub;
    }
    if (!next) break;
    app = next;
  }
  return app;
}

}  // namespace tandem
