"""`tandem match` through the real program: games that python-chess replays, numbers beside a second computation of them,
engines with planted faults, Ctrl-C, and Stockfish where it is installed.

    python3 chess_match_test.py <folder with tandem> <the fake engine> [unittest arguments]

What needs PyPI's chess or Debian's stockfish is skipped without it, and said so.
"""
import io
import json
import math
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import unittest

FAKE = pathlib.Path(sys.argv.pop(2)).resolve()

from run_test import TANDEM, Case  # noqa: E402  (takes the folder from the command line)

try:
    import chess
    import chess.pgn
except ImportError:
    chess = None

Z = 1.959963984540054
STOCKFISH = shutil.which("stockfish", path=f"{os.environ.get('PATH', '')}:/usr/games")


def estimate(counts):
    """Mean, r' and interval of src/apps/chess/match/match_score.h, the interval by bisection of its definition."""
    n, top = sum(counts), len(counts) - 1
    mean = sum(i * c for i, c in enumerate(counts)) / (n * top)
    variance = sum(c * (i / top - mean) ** 2 for i, c in enumerate(counts)) / n
    share = (n * (variance / (mean * (1 - mean)) if 0 < mean < 1 else 1) + 1) / (n + 1)

    def excess(u):
        return (mean - u) ** 2 - Z * Z * share * u * (1 - u) / n

    def edge(inside, outside):
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if excess(middle) <= 0 else (inside, middle)
        return inside

    low, high = edge(mean, 0.0), edge(mean, 1.0)
    return mean, low, high, 0.5 * math.erfc(-(mean - 0.5) / math.sqrt(share / (4 * n)) / math.sqrt(2))


def elo(score):
    return None if score <= 0 or score >= 1 else 400 * math.log10(score / (1 - score))


class Match(Case):
    def match(self, *args, code=0):
        done = self.tandem("match", *args, "--json", code=code)
        self.said = done.stderr
        return json.loads(done.stdout)

    def games(self, result):
        with open(self.dir / result["pgn"]) as file:
            return list(iter(lambda: chess.pgn.read_game(file), None))

    def fake(self, fault="", **options):
        settings = {**({"Fault": fault} if fault else {}), **options}
        return ",".join([f"uci:{FAKE}", "nodes=1", *(f"option.{name}={value}" for name, value in settings.items())])

    def assert_numbers(self, found, counts):
        mean, low, high, superiority = estimate(counts)
        for name, value in (("score", mean), ("low", low), ("high", high), ("superiority", superiority)):
            self.assertAlmostEqual(found[name], value, 9, name)
        for name, value in (("value", elo(mean)), ("low", elo(low)), ("high", elo(high))):
            if value is None:
                self.assertIsNone(found["elo"][name])
            else:
                self.assertAlmostEqual(found["elo"][name], value, 6, name)


@unittest.skipIf(chess is None, "PyPI's chess is not installed")
class Games(Match):
    def assert_follows_the_rules(self, game):
        board, claimed = game.board(), None
        for move in game.mainline_moves():
            self.assertIn(move, board.legal_moves)
            self.assertFalse(board.is_game_over() or board.is_repetition(3) or board.halfmove_clock >= 100, "it was over")
            board.push(move)
        outcome = board.outcome()
        result, termination = game.headers["Result"], game.headers["Termination"]
        if termination == "adjudication":
            self.assertIsNone(outcome)
            return
        self.assertEqual(termination, "normal")
        if outcome:
            self.assertEqual(result, outcome.result())
        else:
            self.assertTrue(board.is_repetition(3) or board.halfmove_clock >= 100)
            self.assertEqual(result, "1/2-1/2")

    def test_python_chess_replays_every_game_and_counts_what_we_count(self):
        result = self.match("minimax", "greedy", "--games", 40, "--seed", 11, "--max-plies", 300)
        games = self.games(result)
        self.assertEqual(len(games), 40)
        points = []
        for number, game in enumerate(games):
            self.assertEqual(game.errors, [])
            self.assert_follows_the_rules(game)
            self.assertEqual(game.headers["Round"], f"{number // 2 + 1}.{number % 2 + 1}")
            self.assertEqual(game.headers["White"], ["minimax", "greedy"][number % 2])
            self.assertEqual(game.headers["Black"], ["greedy", "minimax"][number % 2])
            white = {"1-0": 2, "1/2-1/2": 1, "0-1": 0}[game.headers["Result"]]
            points.append(white if number % 2 == 0 else 2 - white)
        for first, second in zip(games[::2], games[1::2]):
            self.assertEqual(list(first.mainline_moves())[:8], list(second.mainline_moves())[:8])
        self.assertGreater(len({str(list(game.mainline_moves())[:8]) for game in games}), 18)
        pairs = [first + second for first, second in zip(points[::2], points[1::2])]
        self.assertEqual([result["wins"], result["draws"], result["losses"]], [points.count(n) for n in (2, 1, 0)])
        self.assertEqual(result["pairs"], [pairs.count(n) for n in range(5)])
        self.assertEqual(result["as_white"]["wins"], points[::2].count(2))
        self.assertEqual(sum(result["endings"].values()), 40)
        self.assert_numbers(result["by_pairs"], result["pairs"])
        self.assert_numbers(result["by_games"], [points.count(n) for n in range(3)])
        self.assertEqual(result["scale"], [])
        self.assertGreater(result["by_pairs"]["low"], 0.5, "minimax is better than greedy")

    def test_max_plies_counts_the_half_moves_of_the_opening(self):
        result = self.match("random", "random", "--games", 4, "--opening-plies", 6, "--max-plies", 9)
        for game in self.games(result):
            self.assertEqual((len(list(game.mainline_moves())), game.headers["PlyCount"], game.headers["Termination"]), (9, "9", "adjudication"))
        (self.dir / "book.epd").write_text("rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 30\n")
        result = self.match("random", "random", "--games", 2, "--openings", "book.epd", "--max-plies", 5)
        self.assertEqual({game.headers["PlyCount"] for game in self.games(result)}, {"5"}, "moves before the position are none of the game")

    def test_an_elo_that_is_known_is_the_scale_of_the_other_player(self):
        result = self.match("greedy", "random", "--games", 20, "--max-plies", 80, "--anchor", -700, "--jobs", 2)
        (scale,) = result["scale"]
        self.assertEqual((scale["name"], scale["anchor"], scale["anchor_elo"], scale["anchor_from"]), ("greedy", "random", -700, "--anchor"))
        for end in ("low", "value", "high"):
            self.assertAlmostEqual(scale["elo"][end], result["by_pairs"]["elo"][end] - 700, 6)

    def test_a_seed_gives_the_same_games_for_any_number_of_jobs(self):
        def text(*flags):
            (self.dir / "games.pgn").unlink(missing_ok=True)
            result = self.match("random", "minimax", "--games", 12, "--pgn", "games.pgn", *flags)
            return re.sub(r"\[Date .*\]", "", (self.dir / result["pgn"]).read_text())

        one = text("--jobs", 1)
        for jobs in (2, 7):
            self.assertEqual(text("--jobs", jobs), one)
        self.assertNotEqual(text("--seed", 2), one)

    def test_games_are_added_to_a_file_and_a_new_one_has_a_new_name(self):
        for games in (2, 4):
            result = self.match("random", "greedy", "--games", 2, "--pgn", "kept.pgn", "--max-plies", 20)
            self.assertEqual(len(self.games(result)), games, "what was there stays")
        names = {self.match("random", "greedy", "--games", 2, "--max-plies", 20)["pgn"] for _ in range(3)}
        self.assertEqual(len(names), 3, "also within one second")
        for name in names:
            self.assertEqual(len(self.games({"pgn": name})), 2)

    def test_openings_of_a_file_are_played_from_both_sides(self):
        (self.dir / "book.epd").write_text("4k3/pppppppp/8/8/8/8/PPPPPPPP/4K2R w K - id \"a rook up\";\n"
                                           "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq e6 0 2\n")
        result = self.match("greedy", "random", "--games", 6, "--openings", "book.epd", "--draws", "fide")
        self.assertIn("2 openings for 3 pairs", self.said)
        fens = [game.headers["FEN"] for game in self.games(result)]
        self.assertEqual(fens[::2], fens[1::2])
        self.assertEqual(fens[0], fens[4])
        self.assertEqual(len(set(fens)), 2)

    def test_openings_may_be_the_first_moves_of_games(self):
        (self.dir / "games.pgn").write_text('[Event "a"]\n\n1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *\n\n[Event "b"]\n\n1. d4 d5 2. c4 *\n')
        result = self.match("random", "greedy", "--games", 4, "--openings", "games.pgn", "--opening-plies", 3, "--pgn", "out.pgn")
        begun = {" ".join(m.uci() for m in list(g.mainline_moves())[:3]) for g in self.games(result)}
        self.assertEqual(begun, {"e2e4 e7e5 g1f3", "d2d4 d7d5 c2c4"})

    def test_ctrl_c_keeps_what_was_played(self):
        for signals, code in (([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGTERM], 143)):
            process = subprocess.Popen([TANDEM, "match", "random", self.fake(), "--games", "100000", "-v", "--json", "--jobs", "3"],
                                       cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.wait_for(process, "game 4: ")
            for number in signals:
                process.send_signal(number)
            out, _ = process.communicate()
            self.assertEqual(process.returncode, code)
            result = json.loads(out)
            self.assertEqual(len(self.games(result)), result["games"])
            self.assertGreaterEqual(result["games"], 2, "the fourth has ended, and two before it may go on")
            self.assertLess(result["games"], 100000)
            self.assertTrue(result["stopped"])
            self.assert_numbers(result["by_pairs"], result["pairs"])
            os.remove(self.dir / result["pgn"])

    def test_one_ctrl_c_lets_the_games_under_way_end(self):
        process = subprocess.Popen([TANDEM, "match", "random", self.fake(), "--games", "100000", "-v", "--json", "--jobs", "2"],
                                   cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait_for(process, "game 2: ")
        process.send_signal(signal.SIGINT)
        out, said = process.communicate()
        self.assertEqual(process.returncode, 130)
        under_way = re.search(r"no more games; (\d) under way are played to their end. Ctrl-C again breaks them off\n((?:.*\n)*)", said)
        self.assertTrue(under_way, said)
        ended = re.findall(r"game \d+: \S+ after \d+ half-moves", under_way[2])   # a game that is broken off is not told
        self.assertGreaterEqual(len(ended), int(under_way[1]), said)
        self.assertEqual(len(self.games(json.loads(out))), json.loads(out)["games"])


class Faults(Match):
    """Each fault is named and costs its game; the engine is started again for the next one."""

    def assert_loses_all_and_stops(self, fault, what, termination, *flags):
        result = self.match(self.fake(fault), "random", "--games", 20, "--jobs", 1, *flags, code=1)
        self.assertEqual((result["games"], result["losses"]), (3, 3), result)
        self.assertEqual(result["stopped"], "Fake 1.0, 1 nodes failed in 3 games in a row")
        self.assertEqual([f["game"] for f in result["failures"]], [1, 2, 3])
        for failure in result["failures"]:
            self.assertIn(what, failure["what"] + ": " + failure["why"])
        self.assertIn("lost it", self.said)
        self.assertIn(what, self.said)
        text = (self.dir / result["pgn"]).read_text()
        self.assertEqual(text.count(f'[Termination "{termination}"]'), 3)

    def test_a_crash(self):
        self.assert_loses_all_and_stops("crash 3", "signal 11", "abandoned")

    def test_an_exit_with_its_last_words(self):
        self.assert_loses_all_and_stops("exit 1", 'exit status 3; it was to move in', "abandoned")
        self.assertIn("I have had enough", self.said)

    def test_a_crash_before_any_move_is_told_in_the_pgn_too(self):
        self.assert_loses_all_and_stops("exit 1", "exit status 3", "abandoned", "--opening-plies", 0, "--pgn", "kept.pgn")
        text = (self.dir / "kept.pgn").read_text()
        game = text.split("\n\n")[1]   # of the first game, where the engine is White
        self.assertTrue(game.startswith("{Fake 1.0, 1 nodes crashed: "), game)
        self.assertEqual(game.split()[-1], "0-1")

    def test_a_timeout_may_be_a_fraction_of_a_second(self):
        self.assert_loses_all_and_stops("silent 2", "no bestmove within 0.25 s", "time forfeit", "--timeout", 0.25)

    def test_a_clock_that_has_run_out(self):
        """The engine is waited for as long as its clock and the timeout have it."""
        log = self.dir / "log"
        engine = f"uci:{FAKE},option.Log={log},option.Fault=silent 1"
        result = self.match(engine, "random", "--games", 2, "--jobs", 1, "--tc", "2+1", "--timeout", 0.25)
        self.assertEqual((result["losses"], result["limit"]), (2, "2+1 s on the clock"))
        self.assertIn("no bestmove within 2.", self.said)
        self.assertIn("go wtime 2000 btime 2000 winc 1000 binc 1000\n", log.read_text())
        text = (self.dir / result["pgn"]).read_text()
        self.assertEqual((text.count('[TimeControl "2+1"]'), text.count('[Termination "time forfeit"]')), (2, 2))

    def test_moves_that_take_too_long_are_counted_and_warned_of(self):
        result = self.match(f"uci:{FAKE},movetime=10,option.Fault=slow 2", "random", "--games", 2, "--jobs", 1, "--max-plies", 20)
        times = result["times"]["first"]
        self.assertGreaterEqual(times["overruns"], 1)
        self.assertGreaterEqual(times["largest_ms"], 100)
        self.assertGreaterEqual(times["moves"], 8)
        self.assertEqual(result["times"]["second"]["overruns"], 0, "it has no move time")
        self.assertIn("took more than its move time", self.said)

    def test_silence(self):
        self.assert_loses_all_and_stops("silent 2", "no bestmove within 1 s", "time forfeit", "--timeout", 1)

    def test_an_illegal_move(self):
        self.assert_loses_all_and_stops("illegal 2", 'played "e2e5", which is no legal move', "rules infraction")

    def test_output_without_end(self):
        self.assert_loses_all_and_stops("long 2", "64 KiB", "rules infraction")

    def test_a_fault_once_costs_one_game(self):
        result = self.match(self.fake("crash 4", Marker=self.dir / "marker"), "random", "--games", 8, "--jobs", 2)
        self.assertEqual(result["games"], 8)
        self.assertEqual(len(result["failures"]), 1)
        self.assertIsNone(result["stopped"])
        self.assertEqual(result["endings"].get("fault of a player"), 1)

    def test_the_engine_that_fails_is_the_one_that_is_named(self):
        result = self.match("random", self.fake("illegal 1"), "--games", 20, "--jobs", 1, code=1)
        self.assertEqual((result["games"], result["wins"]), (3, 3))
        self.assertIn("Fake 1.0", result["stopped"])

    def test_engines_are_gone_afterwards(self):
        engine = self.dir / "engine"   # a name of its own, by which its processes are known
        engine.symlink_to(FAKE)
        settings = f"uci:{engine},nodes=1,option.Fault=linger"
        process = subprocess.Popen([TANDEM, "match", settings, settings, "--games", "1000", "-v", "--jobs", "2", "--max-plies", "20"], cwd=self.dir,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.wait_for(process, "game 4: ")
        self.assertIn(str(engine), self.processes(), "while the match goes on they are there")
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.assertEqual(process.returncode, 143)
        self.assertNotIn(str(engine), self.processes())

    def processes(self):
        return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout

    def slow_starter(self):
        """An engine that plays no move: the first process crashes at `go`, or where `first` is False there is no such. All
        others say on a pipe that they were started, and no more. Returns its path and the pipe."""
        pipe, engine = self.dir / "started", self.dir / "engine.sh"
        os.mkfifo(pipe)
        engine.write_text(f"#!/bin/sh\nif [ -e {self.dir}/crash ]; then rm {self.dir}/crash\n"
                          "while read word rest; do case $word in uci) echo uciok;; isready) echo readyok;; go) exit 3;; esac; done; fi\n"
                          f"echo started > {pipe}\nwhile read word; do :; done\n")
        engine.chmod(0o755)
        return engine, pipe

    def test_a_signal_ends_it_while_an_engine_starts(self):
        engine, pipe = self.slow_starter()
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([TANDEM, "match", "random", f"uci:{engine}", "--timeout", "86400"], cwd=self.dir,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            pipe.read_text()
            process.send_signal(number)
            out, said = process.communicate()
            self.assertEqual(process.returncode, code, said)
            self.assertEqual(out, "")
            self.assertIn("stopped before the first game", said)
        self.assertEqual(list(self.dir.glob("*.pgn")), [], "no game, no file")

    def test_a_signal_ends_it_while_an_engine_is_started_again(self):
        engine, pipe = self.slow_starter()
        (self.dir / "crash").touch()
        process = subprocess.Popen([TANDEM, "match", "random", f"uci:{engine}", "--timeout", "86400", "--jobs", "1", "--json"], cwd=self.dir,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        pipe.read_text()
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate()
        self.assertEqual(process.returncode, 143, said)
        result = json.loads(out)
        self.assertEqual((result["games"], result["wins"], len(result["failures"])), (1, 1, 1), "the game that was lost counts, the other does not")


class BadInput(Match):
    def assert_refused(self, *args, words=(), code=2):
        done = self.tandem("match", *args, code=code)
        self.assert_explains(done, *words)
        self.assertEqual(list(self.dir.glob("*.pgn")), [])

    def test_players(self):
        self.assert_refused("minmax", "random", words=["did you mean minimax?"])
        self.assert_refused("random", words=["a match has two players"])
        self.assert_refused("random", "uci:/no/such/engine", words=["there is no such file"])
        script = self.dir / "engine.sh"  # it ends: what stays silent is waited for, which tests/chess/engines_test.cc shortens
        script.write_text("#!/bin/sh\nread word\necho \"$word: not found\"\n")
        script.chmod(0o755)
        self.assert_refused("random", f"uci:{script},nodes=1", words=["does not speak UCI", 'it said "uci: not found"'])
        self.assert_refused("random", "uci:/bin/true", words=["it ended with exit status 0"])
        self.assert_refused("random", self.fake(Levle=3), words=["did you mean Level?"])
        self.assert_refused("random", self.fake(Level="high"), words=["takes a whole number"])

    def test_numbers(self):
        self.assert_refused("random", "greedy", "--games", 7, words=["is odd", "give 6 or 8"])
        self.assert_refused("random", "greedy", "--jobs", 0, words=["it goes from 1"])
        self.assert_refused("random", "greedy", "--movetime", 0, words=["it goes from 1"])
        self.assert_refused("random", "greedy", "--draws", "never", words=["give claim or fide"])
        for seconds in ("0", "-1", "1e9", "soon", "nan"):
            self.assert_refused("random", "greedy", f"--timeout={seconds}", words=["it is seconds, from 0.01"])
        self.assert_refused("random", "greedy", "--tc", "fast", words=["--tc fast: no time control", "60+0.6"])
        self.assert_refused("random", "greedy", "--tc", "60", "--movetime", 5, words=["--tc and --movetime were both given"])
        self.assert_refused("random", "greedy", "--max-plies", 8, words=["an opening has 8 half-moves", "more than 8"])
        (self.dir / "long.pgn").write_text("1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 *\n")
        refused = self.tandem("match", "random", "greedy", "--openings", "long.pgn", "--max-plies", 6, "--pgn", "out", code=2)
        self.assert_explains(refused, "an opening has 6 half-moves", "--opening-plies")
        (self.dir / "book.epd").write_text("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -\n")
        refused = self.tandem("match", "random", "greedy", "--openings", "book.epd", "--opening-plies", 2, "--pgn", "out", code=2)
        self.assert_explains(refused, "book.epd holds positions")
        self.assertFalse((self.dir / "out").exists())

    def test_files(self):
        (self.dir / "bad.epd").write_text("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq -\nhello world\n")
        self.assert_refused("random", "greedy", "--openings", "bad.epd", words=["bad.epd, line 2"])
        (self.dir / "bad.pgn").write_text('[Event "a"]\n\n1. e4 e5 *\n\n[Event "b"]\n\n1. e4 e5\n2. Nf3 Nc6 3. Bb6 *\n')
        refused = self.tandem("match", "random", "greedy", "--openings", "bad.pgn", "--pgn", "out", code=2)
        self.assert_explains(refused, "bad.pgn: not all of it can be read", "game 2, line 8: 3. Bb6: no bishop can go to b6")
        (self.dir / "bad.pgn").unlink()
        self.assert_refused("random", "greedy", "--openings", "none.epd", words=["there is no such file"])
        self.assert_refused("random", "greedy", "--pgn", "no/such/folder/x", words=["cannot write no/such/folder/x", "No such file"])
        (self.dir / "target").write_text("mine")
        (self.dir / "link").symlink_to("target")
        self.assert_refused("random", "greedy", "--pgn", "link", words=["links are not followed"])
        self.assertEqual((self.dir / "target").read_text(), "mine")
        self.assert_refused("random", "greedy", "--pgn", "-", words=["games go to a file"])

    def test_no_stockfish_here(self):
        hide = "mount --bind /var/empty-of-games /usr/games 2>/dev/null || mount -t tmpfs none /usr/games && exec \"$@\""
        probe = subprocess.run(["unshare", "-rm", "sh", "-c", hide, "sh", "true"], capture_output=True)
        if probe.returncode or not pathlib.Path("/usr/games").is_dir():
            self.skipTest("no namespaces here: Stockfish can't be hidden")
        done = subprocess.run(["unshare", "-rm", "sh", "-c", hide, "sh", TANDEM, "match", "stockfish", "random"], cwd=self.dir,
                              capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "HOME": str(self.dir)})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assert_explains(done, "no Stockfish here", "apt-get install stockfish", "random, greedy and minimax need none")

    def test_a_full_disk_ends_the_match(self):
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full here")
        done = self.tandem("match", "random", "greedy", "--games", 4, "--jobs", 1, "--pgn", "/dev/full", code=1)
        self.assert_explains(done, "cannot write /dev/full", "No space left")
        self.assertRegex(done.stdout, r"random against greedy: [1-4] of 4 games", "what was played is told")

    def test_more_games_at_once_than_descriptors_are_counted_beforehand(self):
        def match(soft, hard, jobs):
            return subprocess.run([TANDEM, "match", self.fake(), "random", "--games", "40", "--jobs", str(jobs), "--max-plies", "12"], cwd=self.dir,
                                  capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
        done = match(64, 64, 40)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assert_explains(done, "40 games at once need", "64 are allowed")
        fit = int(re.search(r"give --jobs (\d+)", done.stderr)[1])
        self.assertEqual(match(64, 64, fit).returncode, 0, "as many as it says do fit")
        self.assertEqual(match(64, 4096, 40).returncode, 0, "the soft limit is raised")


class Looks(Match):
    def test_a_terminal_sees_the_score_so_far(self):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([TANDEM, "match", "minimax", "random", "--games", "400", "--jobs", "2"], cwd=self.dir,
                                   stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"})
        os.close(theirs)
        seen = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # the terminal is closed
                break
            if not more:
                break
            seen += more
        table = process.communicate()[0].decode()
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        self.assertRegex(seen.decode(), r"minimax - random")
        self.assertRegex(seen.decode(), r"/400.*games/s.*Elo more than|/400.*games/s.*Elo \+")
        self.assertRegex(table, r"minimax against random: 400 of 400 games, random openings of 8 half-moves, seed 1")
        self.assertRegex(table, r"scale   no anchor")

    def test_the_help_has_commands_to_copy(self):
        text = self.tandem("match", "--help").stdout
        self.assertTrue(text.startswith("usage: tandem match <player> <player> [flags]\n"), text)
        for word in ("match minimax random", "stockfish:1500", "uci:", "--openings", "--movetime", "any legal move"):
            self.assertIn(word, text)


@unittest.skipUnless(STOCKFISH, "Debian's stockfish is not installed")
class Stockfish(Match):
    def test_its_elo_is_the_anchor_of_the_scale(self):
        result = self.match("stockfish:1", "greedy", "--games", 4, "--movetime", 20, "--timeout", 300, "--jobs", 2,
                            "--max-plies", 200)
        self.assertIn("UCI_Elo 1 is below its least", self.said)
        promised = result["first"]["promised_elo"]
        self.assertGreaterEqual(promised, 1000)
        self.assertIn(f"UCI_Elo {promised:.0f}", result["first"]["name"])
        (scale,) = result["scale"]
        self.assertEqual((scale["name"], scale["anchor_elo"]), ("greedy", promised))
        found = result["by_pairs"]["elo"]
        for one, other in (("low", "high"), ("high", "low"), ("value", "value")):
            self.assertEqual(scale["elo"][one] is None, found[other] is None)
            if found[other] is not None:
                self.assertAlmostEqual(scale["elo"][one], promised - found[other], 6)

    def test_it_beats_random_by_nodes_and_leaves_no_process(self):
        self.assert_explains(self.tandem("match", "random", "stockfish:1500", "--anchor", 1200, code=2), "the match has an anchor")
        result = self.match("stockfish:nodes=500", "random", "--games", 6, "--timeout", 300)
        self.assertEqual((result["wins"], result["losses"]), (6, 0))
        self.assertEqual(result["scale"], [])
        self.assertIn("500 nodes", result["first"]["name"])


if __name__ == "__main__":
    unittest.main()
