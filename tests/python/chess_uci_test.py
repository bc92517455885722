"""`tandem play chess RUN --uci` as chess programs meet it: odd orders of the protocol, and games by python-chess.

    python3 chess_uci_test.py <folder with tandem> [the fake engine] [unittest arguments]

Games needs PyPI's chess (exit code 77: skipped). TANDEM_UCI_GAMES is how many games [20]; `make test-long` plays 200, and
no time loss is allowed then. Of fewer a time loss is played again, since a busy machine may take a core away; how many
there were is printed. EnginesBehind are engines that our engine plays by: the fake one, and Stockfish where it is.
"""
import contextlib
import os
import pathlib
import random
import re
import select
import shutil
import subprocess
import sys
import time
import unittest

FAKE = pathlib.Path(sys.argv.pop(2)).resolve() if len(sys.argv) > 2 and os.path.isfile(sys.argv[2]) else None

from run_test import TANDEM, Case  # noqa: E402  (takes the folder from the command line)

try:
    import chess
    import chess.engine
except ImportError:
    chess = None

STOCKFISH = shutil.which("stockfish", path=f"{os.environ.get('PATH', '')}:/usr/games")
GAMES = int(os.environ.get("TANDEM_UCI_GAMES", "20"))
BOUND = 600   # seconds, against hanging alone
LINE = re.compile(r"(id|option) .+|uciok|readyok|bestmove (\(none\)|[a-h][1-8][a-h][1-8][nbrq]?)|info string .+"
                  r"|info( depth \d+)?( score (cp|mate) -?\d+)?( nodes \d+)?( nps \d+)? time \d+( pv( [a-h][1-8][a-h][1-8][nbrq]?)+)?")
ROUND = "g1f3 g8f6 f3g1 f6g8 "   # knights out and back: legal for ever


class Engine:
    def __init__(self, case, player, *flags):
        self.case, self.rest, self.lines = case, b"", []
        self.process = subprocess.Popen([TANDEM, "play", "chess", player, "--uci", *flags], cwd=case.dir,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for end in (self.process.wait, self.process.kill, self.process.stdout.close, self.process.stderr.close, self.close_input):
            case.addCleanup(end)

    def send(self, *lines):
        self.send_bytes(b"".join(line.encode() + b"\n" for line in lines))

    def send_bytes(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_input(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def line(self):
        """The next line; "" at the end."""
        end = time.monotonic() + BOUND
        while b"\n" not in self.rest:
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            self.case.assertTrue(ready, f"silent after {self.lines[-5:]}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                self.case.assertEqual(self.rest, b"", "half a line at the end")
                return ""
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        self.lines.append(line.decode())
        self.case.assertRegex(self.lines[-1], rf"\A(?:{LINE.pattern})\Z")
        return self.lines[-1]

    def until(self, word):
        """All lines up to the first that begins so."""
        lines = [self.line()]
        while not lines[-1].startswith(word):
            self.case.assertTrue(lines[-1], f"it ended before {word}: {self.lines[-5:]}")
            lines.append(self.line())
        return lines

    def best(self):
        return self.until("bestmove")[-1].split()[1]

    def ends(self, code=0):
        while self.line():
            pass
        self.case.assertEqual(self.process.wait(), code, self.process.stderr.read().decode())


class Conformance(Case):
    def test_the_greeting_declares_name_and_options(self):
        engine = Engine(self, "minimax")
        engine.send("uci")
        said = "\n".join(engine.until("uciok"))
        for line in ("id name tandem .*minimax", "id author ", "option name WeightsFile type string", "option name Temperature type string",
                     r"option name Nodes type spin default 0 min 0 max \d+", "option name Depth type spin default 2 min 1 max 6"):
            self.assertRegex(said, f"(?m)^{line}")
        engine.send("isready")
        engine.until("readyok")
        engine.send("quit")
        engine.ends()

    def test_it_starts_within_50_ms(self):
        """Of its own time, as the program's help is measured: a busy machine may let it wait."""
        def taken():
            times = os.times()
            return times.children_user + times.children_system
        def start():
            before = taken()
            said = subprocess.run([TANDEM, "play", "chess", "minimax", "--uci"], cwd=self.dir, input="uci\nisready\nquit\n", capture_output=True, text=True)
            self.assertIn("uciok", said.stdout)
            return taken() - before
        self.assertLess(min(start() for _ in range(5)), 0.05)

    def test_go_before_position_begins_at_the_start(self):
        engine = Engine(self, "random")
        engine.send("go")
        self.assertRegex(engine.best(), r"[a-h][12][a-h][34]")

    def test_go_after_a_new_game_begins_at_the_start(self):
        engine = Engine(self, "random")
        engine.send("position startpos moves e2e4", "ucinewgame", "go")
        self.assertRegex(engine.best(), r"[a-h][12][a-h][34]", "White begins")

    def test_isready_is_answered_while_it_thinks_and_stop_ends_it(self):
        engine = Engine(self, "minimax:depth=6")
        engine.send("position fen r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", "go infinite")
        engine.until("info depth 2")
        for _ in range(100):
            engine.send("isready")
            engine.until("readyok")
        self.assertFalse([line for line in engine.lines if line.startswith("bestmove")], "infinite means until stop")
        engine.send("stop")
        engine.best()

    def test_stop_twice_stop_without_go_and_ponderhit_are_no_trouble(self):
        engine = Engine(self, "minimax:depth=6")
        engine.send("stop", "ponderhit", "go infinite", "stop", "stop", "ponderhit")
        engine.best()
        engine.send("stop", "isready")
        self.assertEqual(engine.line(), "readyok")
        engine.send("go ponder wtime 1000 btime 1000", "isready")
        self.assertFalse([line for line in engine.until("readyok") if line.startswith("bestmove")])
        engine.send("ponderhit")
        engine.best()

    def test_quit_or_the_end_of_the_input_ends_it_while_it_thinks(self):
        for how in ("quit", "eof"):
            engine = Engine(self, "minimax:depth=6")
            engine.send("go infinite")
            engine.until("info depth 2")
            engine.send("quit") if how == "quit" else engine.close_input()
            engine.ends()

    def test_it_ends_when_nobody_reads(self):
        engine = Engine(self, "minimax:depth=6")
        engine.process.stdout.close()
        engine.send("uci", "go infinite")
        self.assertIn(engine.process.wait(), (0,), "not killed by a signal")

    def test_lines_of_10000_moves_are_read(self):
        engine = Engine(self, "greedy")
        moves = ROUND * 2500
        engine.send("position startpos moves " + moves.strip(), "go")
        self.assertRegex(engine.best(), r"[a-h][12][a-h][34]")
        for _ in range(50):
            moves += ROUND
            engine.send("position startpos moves " + moves.strip(), "isready")
            engine.until("readyok")
        engine.send("position startpos moves " + moves.strip() + " e2e4", "go")
        self.assertRegex(engine.best(), r"[a-h][78][a-h][56]")
        self.assertFalse([line for line in engine.lines if "illegal" in line])

    def test_an_illegal_move_in_a_line_is_named_and_the_position_stays(self):
        engine = Engine(self, "random")
        for line, words in (("position startpos moves e2e4 e7e5 e1e3 a7a6", ("e1e3", "number 3")),
                            ("position startpos moves e2e4 e7e5 0000", ("0000", "number 3")),
                            ("position startpos moves e2e4 e7e5 \x1b[31mred", ("number 3",)),
                            ("position fen 4k3/8/8/8/8/8/8/4K2k w - - 0 1", ("no position",)),
                            ("position fen rubbish moves e2e4", ("no position", "rubbish")),
                            ("position moves e2e4", ("startpos",))):
            engine.send("position startpos moves e2e4", line, "isready")
            said = "\n".join(engine.until("readyok"))
            for word in words:
                self.assertIn(word, said)
            self.assertNotIn("\x1b", said)
            engine.send("go")
            self.assertRegex(engine.best(), r"[a-h][78][a-h][56]", "Black answers 1. e4")

    def test_what_nobody_knows_is_passed_over(self):
        engine = Engine(self, "minimax")
        for line in ("xyzzy go far", "go depth deep"):
            engine.send(line)
            engine.best()
        engine.send("", "hello", "setoption", "setoption name Hash value 16", "setoption name Nodes value lots", "setoption name Temperature value -3",
                    "register later", "debug on", "ucinewgame now", "joho isready")
        engine.until("readyok")
        said = "\n".join(engine.lines)
        self.assertIn('no option "Hash"', said)
        self.assertIn('Nodes is a whole number from 0 to', said)
        self.assertIn("Temperature is a number from 0 to", said)
        self.assertIn("depth: it needs a whole number", said)

    def test_bytes_of_any_kind_do_not_end_it(self):
        engine = Engine(self, "minimax")
        draw = random.Random(1)
        words = [b"position", b"startpos", b"fen", b"moves", b"e2e4", b"go", b"depth", b"1", b"setoption", b"name", b"value", b"stop", b"wtime", b"-1", b"ucinewgame"]
        for _ in range(2000):
            engine.send_bytes(b" ".join(draw.choice(words) for _ in range(draw.randrange(8))) + bytes(draw.randrange(256) for _ in range(draw.randrange(4))).replace(b"q", b"") + b"\n")
        engine.send_bytes(b"position startpos moves " + b"x" * (3 << 20) + b"\n" + b"\0" * 5000 + b"\r\n")
        engine.send("ucinewgame", "position startpos", "go depth 1", "isready")
        self.assertTrue(any("passed over" in line for line in engine.until("readyok") + engine.lines))
        engine.send("stop", "position fen 7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "go")
        while engine.best() != "(none)":
            pass

    def test_positions_without_moves_have_no_best_move(self):
        engine = Engine(self, "minimax")
        for fen, score in (("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "score cp 0"), ("7k/6Q1/6K1/8/8/8/8/8 b - - 0 1", "score mate 0")):
            engine.send(f"position fen {fen}", "go")
            lines = engine.until("bestmove")
            self.assertEqual(lines[-1], "bestmove (none)")
            self.assertIn(score, lines[-2])

    def test_limits_are_kept(self):
        engine = Engine(self, "minimax:depth=6")
        engine.send("position startpos", "go depth 3")
        self.assertEqual([line.split()[2] for line in engine.until("bestmove") if " pv " in line], ["1", "2", "3"])
        for go, seconds in (("go movetime 300", 0.3), ("go wtime 3000 btime 10 winc 0 binc 0", 1), ("go wtime 500 btime 60000 movestogo 1", 0.5),
                            ("go wtime 1 btime 60000", 0.05), ("go wtime -100 btime 60000", 0.05)):
            def in_time(attempt):
                begin = time.monotonic()
                engine.send("position fen r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", go)
                engine.best()
                self.assertLess(time.monotonic() - begin, seconds * (attempt + 1), go)
            self.again(in_time)

    def test_a_mate_is_seen_and_scored(self):
        engine = Engine(self, "minimax:depth=3")
        engine.send("position fen 6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "go")
        lines = engine.until("bestmove")
        self.assertIn("score mate 1 ", lines[-2])
        self.assertEqual(lines[-1], "bestmove a1a8")

    def test_the_same_seed_gives_the_same_game(self):
        def game(seed):
            engine = Engine(self, "random")
            engine.send(f"setoption name Seed value {seed}", "ucinewgame")
            moves = []
            for _ in range(12):
                engine.send("position startpos moves " + " ".join(moves), "go")
                moves.append(engine.best())
            return moves
        self.assertEqual(game(7), game(7))
        self.assertNotEqual(game(7), game(8))

    def test_what_is_no_player_is_refused_before_the_protocol_begins(self):
        for player in ("minimaxx", "uci:/nowhere/engine"):
            self.assert_explains(self.tandem("play", "chess", player, "--uci", code=2), player.split(":")[-1])

    def test_an_engine_behind_it_that_crashes_is_said_to_have_crashed(self):
        script = self.dir / "engine.sh"
        script.write_text("#!/bin/sh\nwhile read word rest; do case $word in uci) echo uciok;; isready) echo readyok;; go) exit 3;; esac; done\n")
        script.chmod(0o755)
        engine = Engine(self, f"uci:{script}")
        for _ in range(2):   # it is started again
            engine.send("go movetime 10")
            lines = engine.until("bestmove")
            self.assertIn("crashed", lines[-2])
            self.assertEqual(lines[-1], "bestmove (none)")


class EnginesBehind(Case):
    """An engine behind ours: what it is told, and games with it."""

    def fake(self, fault=""):
        self.log = self.dir / "log"
        self.log.unlink(missing_ok=True)
        return f"uci:{FAKE},option.Log={self.log}" + (f",option.Fault={fault}" if fault else "")

    def told(self, word):
        return [line for line in self.log.read_text().splitlines() if line.startswith(word)]

    @unittest.skipUnless(FAKE, "the fake engine was not named")
    def test_it_is_told_the_limits_of_the_gui(self):
        engine = Engine(self, self.fake())
        engine.send("setoption name Move Overhead value 50")
        for go, told in (("go depth 40", "go depth 40"), ("go nodes 5000000000", "go nodes 5000000000"), ("go mate 9", "go depth 18"),
                         ("go movetime 250", "go movetime 200"), ("go wtime 5000", "go wtime 4950 btime 4950 winc 0 binc 0"),
                         ("go wtime 9000 btime 8000 winc 300 binc 200 movestogo 7", "go wtime 8950 btime 7950 winc 300 binc 200 movestogo 7"),
                         ("go", "go movetime 100")):
            engine.send("position startpos moves e2e4", go)
            self.assertRegex(engine.best(), r"[a-h][78][a-h][56]")
            self.assertEqual(self.told("go")[-1], told)
        self.assertEqual(len(self.told("ucinewgame")), 1)
        self.assertEqual(self.told("position")[-1], "position startpos moves e2e4")

    @unittest.skipUnless(FAKE, "the fake engine was not named")
    def test_stop_and_ponder_reach_it(self):
        engine = Engine(self, self.fake("late 1"))
        engine.send("go infinite")
        engine.until("info depth 1 score cp 12")
        engine.send("isready")
        engine.until("readyok")
        engine.send("stop")
        engine.best()
        engine.send("position startpos moves e2e4", "go ponder wtime 60000 btime 60000")
        engine.until("info depth 3")
        engine.send("isready")
        self.assertFalse([line for line in engine.until("readyok") if line.startswith("bestmove")], "it waits for ponderhit")
        engine.send("ponderhit")
        self.assertRegex(engine.best(), r"[a-h][78][a-h][56]")
        engine.send("quit")
        engine.ends()

    def games_of(self, player, limits, plies):
        board, clocks = chess.Board(), [limits[0].get("clock"), limits[1].get("clock")]
        engine = chess.engine.SimpleEngine.popen_uci([str(TANDEM), "play", "chess", player, "--uci"], timeout=BOUND)
        try:
            while not board.is_game_over() and board.ply() < plies:
                limit = {key: value for key, value in limits[board.ply() % 2].items() if key != "clock"}
                if clocks[board.ply() % 2]:
                    limit |= {"white_clock": clocks[0] or 60, "black_clock": clocks[1] or 60, "white_inc": 0.1, "black_inc": 0.1}
                result = engine.play(board, chess.engine.Limit(**limit))
                self.assertIn(result.move, board.legal_moves)
                board.push(result.move)
        finally:
            engine.quit()

    @unittest.skipUnless(FAKE and chess, "needs the fake engine and PyPI's chess")
    def test_games_with_the_fake_engine_have_no_illegal_move(self):
        for limits in ([{"clock": 60}, {"depth": 5}], [{"time": 5}, {"nodes": 1000}]):
            self.games_of(self.fake(), limits, 60)
        self.assertGreater(len(self.told("go movetime 4950")), 5)

    @unittest.skipUnless(STOCKFISH and chess, "needs Debian's stockfish and PyPI's chess")
    def test_games_with_stockfish_have_no_illegal_move(self):
        for limits in ([{"clock": 3}, {"time": 0.06}], [{"depth": 4}, {"nodes": 500}]):
            self.games_of("stockfish:1500", limits, 16)


class Games(Case):
    """Both sides are ours; python-chess keeps board and clocks, and throws at what is illegal."""

    # (player, its options, limits): the clock is in seconds
    CLOCK, FIXED = {"clock": 3.0, "increment": 0.1}, {"clock": 60.0, "increment": 0.0}
    SIDES = [("random", {}, FIXED), ("minimax", {}, FIXED), ("minimax", {"Depth": 6}, CLOCK), ("greedy", {}, CLOCK), ("minimax", {"Depth": 1}, {"time": 1}),
             ("minimax", {"Depth": 3}, {"nodes": 2000}), ("minimax", {"Depth": 6}, {"depth": 2}), ("random", {"Nodes": 5}, {})]

    def play(self, number, plies):
        draw = random.Random(number)
        sides = [self.SIDES[number % len(self.SIDES)], draw.choice(self.SIDES)]
        if number // len(self.SIDES) % 2:
            sides.reverse()
        engines, board, clocks = [], chess.Board(), [side[2].get("clock") for side in sides]
        try:
            for player, options, _ in sides:
                engines.append(chess.engine.SimpleEngine.popen_uci([str(TANDEM), "play", "chess", player, "--uci"], timeout=BOUND))
                engines[-1].configure(options)
            for _ in range(draw.randrange(8)):
                board.push(draw.choice(list(board.legal_moves)))
                if board.is_game_over():
                    board = chess.Board()
            while not board.is_game_over() and not board.can_claim_draw() and board.ply() < plies:
                me = 0 if board.turn else 1
                limit = {key: value for key, value in sides[me][2].items() if key not in ("clock", "increment")}
                if clocks[me] is not None:
                    limit |= {"white_clock": clocks[0] or 60, "black_clock": clocks[1] or 60,
                              "white_inc": sides[0][2].get("increment", 0), "black_inc": sides[1][2].get("increment", 0)}
                begin = time.monotonic()
                result = engines[me].play(board, chess.engine.Limit(**limit), game=number)
                took = time.monotonic() - begin
                self.assertIsNotNone(result.move, board.fen())
                self.assertTrue(board.is_legal(result.move), f"{result.move} in {board.fen()}")
                if clocks[me] is not None:
                    clocks[me] -= took
                    if clocks[me] < 0:
                        return "time loss", board
                    clocks[me] += sides[me][2]["increment"]
                board.push(result.move)
            return "played", board
        finally:
            for engine in engines:
                engine.quit()

    def test_games_by_python_chess_have_no_illegal_move_and_no_time_loss(self):
        losses, plies, ends = 0, 0, {}
        for number in range(GAMES):
            for attempt in range(3):
                how, board = self.play(number, 300 if GAMES > 20 else 50)
                plies += board.ply()
                if how == "played":
                    break
                losses += 1
                self.assertLess(GAMES, 200, f"game {number}: a time loss")
                self.assertLess(attempt, 2, f"game {number}: time losses in every try")
            outcome = board.outcome(claim_draw=True)
            end = outcome.termination.name.lower() if outcome else "cut"
            ends[end] = ends.get(end, 0) + 1
        print(f"{GAMES} games, {plies} half-moves, 0 illegal moves, {losses} time losses; ends: {ends}", flush=True)


if __name__ == "__main__":
    if chess is None and "Games" in sys.argv[1:]:
        print(f"skipped: no python-chess in {sys.executable}; `scripts/setup.sh test` brings it")
        sys.exit(77)
    unittest.main()
