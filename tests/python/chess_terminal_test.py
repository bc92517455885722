"""`tandem play chess RUN` by typing: through pipes, and in a terminal of its own.

    python3 chess_terminal_test.py <folder with tandem> [unittest arguments]

PGN is read back by python-chess where it is installed.
"""
import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import unittest

from run_test import TANDEM, Case

try:
    import io

    import chess.pgn
except ImportError:
    chess = None

MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"   # a8 mates
CRASHES = "#!/bin/sh\nwhile read word rest; do case $word in uci) echo uciok;; isready) echo readyok;; go) exit 3;; esac; done\n"


class Typed(Case):
    def play(self, typed, *args, player="random", code=0, env=None):
        done = subprocess.run([TANDEM, "play", "chess", player, "--seed", "5", *args], cwd=self.dir, input="".join(line + "\n" for line in typed), text=True,
                              capture_output=True, env={"PATH": os.environ["PATH"], "HOME": str(self.dir), "LC_ALL": "C", **(env or {})})
        self.assertEqual(done.returncode, code, f"{done.stdout}\n{done.stderr}")
        return done.stdout if code == 0 else done.stderr

    def play_and_fail(self, typed, *args):
        done = subprocess.run([TANDEM, "play", "chess", "random", *args], cwd=self.dir, input="".join(line + "\n" for line in typed), text=True, capture_output=True)
        self.assertEqual(done.returncode, 1, f"{done.stdout}\n{done.stderr}")
        return done

    def refused(self, args, *words):
        done = self.tandem("play", *args, code=2)
        self.assert_explains(done, *words)

    def read_pgn(self, text):
        if chess is None:
            print("SKIPPED: there is no python-chess here; `scripts/setup.sh test` brings it", file=sys.stderr)
            self.skipTest("no python-chess")
        games, stream = [], io.StringIO(text)
        while game := chess.pgn.read_game(stream):
            self.assertEqual(game.errors, [])
            games.append(game)
        return games


class Pipes(Typed):
    def test_results_are_said_with_their_reason(self):
        for fen, moves, words in ((MATE_IN_ONE, ["Ra8"], "You win, 1-0: checkmate."),
                                  ("7k/5Q2/8/6K1/8/8/8/8 w - - 0 1", ["Kg6"], "Draw, 1/2-1/2: stalemate"),
                                  ("8/8/8/8/8/4k3/8/4K2n w - - 0 1", [], "Draw, 1/2-1/2: neither side has what it takes to mate."),
                                  ("k7/8/1K6/8/8/8/8/7R b - - 0 1", [], "random plays 1... Kb8"),
                                  ("7k/8/8/8/8/8/R7/K7 w - - 149 90", ["Ra3"], "Draw, 1/2-1/2: 75 moves of each side"),
                                  ("7k/8/8/8/8/8/R7/K7 w - - 99 80", ["draw"], "Draw, 1/2-1/2: claimed: 50 moves"),
                                  (MATE_IN_ONE, ["resign"], "random wins, 0-1: White resigned.")):
            self.assertIn(words, self.play(moves, "--fen", fen), fen)

    def test_draws_without_a_claim_are_by_the_rule_that_was_asked_for(self):
        for rule, words in (("claim", "Draw, 1/2-1/2: 50 moves of each side"), ("fide", "random plays 80... ")):
            self.assertIn(words, self.play(["Ra3"], "--fen", "7k/8/8/8/8/8/R7/K7 w - - 99 80", "--draws", rule))

    def test_bad_input_is_explained_and_the_game_goes_on(self):
        said = self.play(["Nf6", "e9", "e2e5", "udno", "new purple", "pgn /nowhere/x.pgn", "x" * 10000, "\x1b[31m", "Ra8"], "--fen", MATE_IN_ONE)
        self.assertEqual(said.count("error: "), 8)
        self.assertEqual(said.count("\n  why    "), 8)
        self.assertEqual(said.count("\n  do     "), 8)
        self.assertIn("did you mean `undo`?", said)
        self.assertIn("No such file", said)
        self.assertNotIn("\x1b", said)
        self.assertIn("You win, 1-0: checkmate.", said)

    def test_after_the_end_only_another_game_or_undo(self):
        said = self.play(["Ra8", "Kd1", "moves", "draw", "resign", "undo", "moves", "Ra8#"], "--fen", MATE_IN_ONE)
        self.assertEqual(said.count("error: this game is over"), 4)
        self.assertIn(" Ra8# ", said)
        self.assertEqual(said.count("You win"), 2)

    def test_undo_takes_back_a_move_and_its_answer(self):
        said = self.play(["undo", "e4", "fen", "d4", "undo", "fen", "undo", "fen", "undo", "resign", "undo", "fen"])
        fens = re.findall(r"(?m)^\S+ [wb] \S+ \S+ \d+ \d+$", said)
        start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
        self.assertEqual(fens[0], fens[1])
        self.assertEqual(fens[2:], [start, start])
        self.assertEqual(said.count("there is no move of yours to take back"), 2)

    def test_the_same_seed_plays_the_same_also_after_undo(self):
        once = self.play(["e4", "d4", "pgn"])
        again = self.play(["e4", "d4", "undo", "d4", "pgn"])
        self.assertEqual(once[once.index("[Event"):], again[again.index("[Event"):])

    def test_black_sees_the_board_from_its_side_and_the_player_begins(self):
        said = self.play(["fen"], "--black")
        self.assertIn("random plays 1. ", said)
        self.assertRegex(said, r"(?m)^ 8  r  n  b  k  q  b  n  r $\n    h  g  f  e  d  c  b  a")
        self.assertRegex(said, r"(?m)^ 1 ")
        turned = self.play(["flip"], "--black", "--fen", "4k3/8/8/8/8/8/8/4K2R b K - 0 1")
        self.assertRegex(turned, r"(?m)^ 1  \.     \.     K     \.  R $\n    a  b")

    def test_symbols_or_letters_by_locale_and_flag(self):
        for env, flags, unicode in (({"LC_ALL": "C"}, [], False), ({"LC_ALL": "C.UTF-8"}, [], True), ({"LC_ALL": "C.UTF-8"}, ["--ascii"], False),
                                    ({"LC_ALL": "C"}, ["--unicode"], True)):
            said = self.play([], *flags, env=env)
            self.assertEqual("♜" in said, unicode, (env, flags))
            self.assertEqual(" r  n  b " in said, not unicode)
            self.assertNotIn("\x1b", said, "no colours in a pipe")

    def test_games_are_kept_when_they_are_left(self):
        said = self.play(["Ra8", "new black", "new white", "Kd2", "pgn", "pgn other.pgn"], "--fen", MATE_IN_ONE, "--pgn", "kept.pgn")
        games = self.read_pgn((self.dir / "kept.pgn").read_text())
        self.assertEqual([game.headers["Result"] for game in games], ["1-0", "*", "*"])
        self.assertEqual(games[0].end().board().fen(), "R5k1/5ppp/8/8/8/8/8/4K3 b - - 1 1")
        self.assertEqual((games[0].headers["White"], games[0].headers["Black"], games[0].headers["Termination"]), ("Player", "random", "checkmate"))
        self.assertEqual(games[1].headers["White"], "random")
        self.assertIn("added to other.pgn", said)
        self.assertEqual(str(self.read_pgn((self.dir / "other.pgn").read_text())[0]), str(games[2]))
        self.assertEqual(str(self.read_pgn(said[said.index("[Event"):said.index("added to")])[0]), str(games[2]))

    def test_a_file_of_games_keeps_what_it_had_and_no_link_is_followed(self):
        (self.dir / "kept.pgn").write_text('[Event "mine"]\n\n1. d4 *')   # no end of line
        self.play(["e4"], "--pgn", "kept.pgn")
        self.assertEqual([game.headers["Event"] for game in self.read_pgn((self.dir / "kept.pgn").read_text())], ["mine", "tandem play"])
        self.play([], "--pgn", "untouched.pgn")
        self.assertFalse((self.dir / "untouched.pgn").exists(), "no move, no game, no file")
        (self.dir / "target").write_text("mine")
        (self.dir / "link.pgn").symlink_to("target")
        self.assertIn("links are not followed", self.play(["e4", "pgn link.pgn"]))
        self.refused(["chess", "random", "--pgn", "link.pgn"], "links are not followed")
        self.assertEqual((self.dir / "target").read_text(), "mine")

    def test_a_game_that_can_not_be_kept_is_printed(self):
        said = self.play_and_fail(["e4", "quit"], "--pgn", "/dev/full")
        self.assertIn("1. e4 ", said.stdout[said.stdout.index("[Event"):])
        self.assertIn("cannot write /dev/full", said.stderr)

    def test_a_game_against_each_player_can_be_played_through(self):
        for player in ("random", "greedy", "minimax"):
            said = self.play(["e4", "d4", "Nc3", "resign"], player=player)
            self.assertEqual(said.count(f"{player} plays "), 3)
            self.assertIn(f"{player} wins, 0-1: White resigned.", said)

    def test_an_engine_that_crashes_loses_and_another_game_begins(self):
        engine = self.dir / "engine.sh"
        engine.write_text(CRASHES)
        engine.chmod(0o755)
        said = self.play(["e4", "e4", "new", "d4", "undo", "quit"], player=f"uci:{engine}")
        self.assertEqual(said.count("crashed"), 2)
        self.assertEqual(said.count("You win, 1-0: the other side failed."), 2)

    def test_an_engine_that_can_not_be_started_again_leaves_the_game_as_it_is(self):
        engine = self.dir / "engine.sh"   # a second process says nothing
        engine.write_text(f"#!/bin/sh\n[ -e {self.dir}/second ] && exit 4\ntouch {self.dir}/second\n" + CRASHES.split("\n", 1)[1].replace("echo uciok", "echo id name Crashy; echo uciok"))
        engine.chmod(0o755)
        said = self.play(["e4", "undo", "new", "quit"], "--pgn", "kept.pgn", player=f"uci:{engine}")
        self.assertEqual(said.count("does not speak UCI"), 2, said)
        self.assertEqual(said.count("You win, 1-0: the other side failed."), 1)
        games = self.read_pgn((self.dir / "kept.pgn").read_text())
        self.assertEqual([(str(game.mainline_moves()), game.headers["Result"], game.headers["Black"]) for game in games], [("1. e4", "1-0", "Crashy")])

    def test_what_can_not_begin_is_refused(self):
        for args, words in (([], ["which game?", "tandem play chess minimax"]), (["go", "minimax"], ["no game \"go\"", "chess"]),
                            (["ches", "minimax"], ["did you mean `chess`?"]), (["chess"], ["which player?"]), (["chess", "minimaxx"], ["minimax"]),
                            (["chess", "minimax", "now"], ["one word too many"]), (["chess", "minimax", "--white", "--black"], ["both given"]),
                            (["chess", "minimax", "--ascii", "--unicode"], ["both given"]), (["chess", "minimax", "--fen", "4k3/8/8/8/8/8/8/8 w - - 0 1"], ["no king"]),
                            (["chess", "minimax", "--uci", "--fen", "x"], ["not for --uci"]), (["chess", "minimax", "--pgn", "/nowhere/x.pgn"], ["cannot write /nowhere/x.pgn", "No such file"]),
                            (["chess", "minimax", "--json"], ["no --json"]), (["chess", "minimax", "--seed", "-1"], ["--seed"]),
                            (["chess", "uci:/nowhere/engine"], ["/nowhere/engine"]), (["chess", "uci:/bin/true"], ["uci:/bin/true does not speak UCI"])):
            self.refused(args, *words)
        run = self.dir / "runs/chess-20261119-abc"
        run.mkdir(parents=True)
        self.refused(["chess", "runs/chess-20261119-abc"], "is no player", "players are: random")
        (run / "run.json").write_text("{}")
        self.refused(["chess", "runs/chess-20261119-abc"], "it is a run", "no recipe")
        self.refused(["chess", "minimax", "--draws", "never"], "give claim or fide")
        self.refused(["chess", "minimax", "--uci", "--draws", "fide"], "not for --uci")

    def test_help_opens_with_commands_to_copy(self):
        said = self.tandem("play", "--help").stdout
        self.assertTrue(said.startswith("usage: tandem play chess <player> [flags]\n"), said)
        for words in ("any legal move, each as likely", "tandem play chess minimax --uci", "--black", "--fen", "--pgn"):
            self.assertIn(words, said)
        self.assertIn("takes back your last move", self.play(["help"]))


class Terminal(Typed):
    """On a pseudo-terminal: prompts, colours, Ctrl-C and Ctrl-D."""

    def open(self, *args, env=None):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.dir), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", **(env or {})}
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(self.dir)
            os.execve(TANDEM, [str(TANDEM), "play", "chess", *args], environment)
        self.text = b""
        self.addCleanup(os.close, self.terminal)
        self.addCleanup(self.end, pid)
        return pid

    def end(self, pid):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def until(self, words, seconds=600):
        end = time.monotonic() + seconds
        while words not in self.text:
            ready = select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]
            self.assertTrue(ready, f"{words} never came: {self.text[-2000:]}")
            try:
                self.text += os.read(self.terminal, 65536)
            except OSError:
                self.fail(f"{words} never came: {self.text[-2000:]}")
        before, _, self.text = self.text.partition(words)
        return before.decode()

    def ended(self, pid):
        with contextlib.suppress(OSError):
            while more := os.read(self.terminal, 65536):
                self.text += more
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_prompt_colours_and_the_last_move(self):
        pid = self.open("minimax", "--seed", "5")
        board = self.until(b"White 1. ")
        self.assertIn("♜", board)
        self.assertIn("\x1b[48;5;180m", board)
        os.write(self.terminal, b"e4\n")
        board = self.until(b"White 2. ")
        self.assertIn("minimax plays 1... ", board)
        self.assertEqual(len(re.findall(r"\x1b\[48;5;(?:186|143)m", board)), 2, "the two squares of the last move")
        os.write(self.terminal, b"quit\n")
        self.assertEqual(self.ended(pid), 0)

    def test_no_colour_where_none_is_wanted(self):
        for args, env in ((["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})):
            pid = self.open("random", *args, env=env)
            self.assertNotIn("\x1b", self.until(b"White 1. "))
            os.write(self.terminal, b"\x04")
            self.assertEqual(self.ended(pid), 0)

    def test_however_it_is_ended_the_game_is_kept(self):
        for number, (how, code) in enumerate(((b"\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143), (b"\x04", 0), (b"quit\n", 0))):
            pid = self.open("random", "--pgn", f"{number}.pgn")
            self.until(b"White 1. ")
            os.write(self.terminal, b"e4\n")
            self.until(b"White 2. ")
            os.write(self.terminal, how) if isinstance(how, bytes) else os.kill(pid, how)
            self.assertEqual(self.ended(pid), code)
            self.assertIn("1. e4 ", (self.dir / f"{number}.pgn").read_text())

    def test_ctrl_c_ends_it_while_an_engine_starts(self):
        pipe, engine = self.dir / "started", self.dir / "engine.sh"
        os.mkfifo(pipe)
        engine.write_text(f"#!/bin/sh\necho started > {pipe}\nwhile read word; do :; done\n")   # and never says uciok
        engine.chmod(0o755)
        pid = self.open(f"uci:{engine}", "--pgn", "kept.pgn")
        pipe.read_text()
        os.write(self.terminal, b"\x03")
        self.assertEqual(self.ended(pid), 130)
        self.assertNotIn(b"error", self.text)
        self.assertFalse((self.dir / "kept.pgn").exists())

    def test_ctrl_c_ends_it_while_the_player_thinks(self):
        pid = self.open("minimax:depth=6", "--pgn", "kept.pgn", "--fen", "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1")
        self.until(b"White 1. ")
        os.write(self.terminal, b"O-O\n")
        self.until(b"You play 1. O-O\r\n")
        os.write(self.terminal, b"\x03")
        self.assertEqual(self.ended(pid), 130)
        self.assertNotIn(b"plays", self.text, "a move that was broken off is none")
        self.assertIn("1. O-O *", (self.dir / "kept.pgn").read_text())


if __name__ == "__main__":
    unittest.main()
