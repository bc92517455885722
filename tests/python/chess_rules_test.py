#!/usr/bin/env python3
"""Our rules of chess beside python-chess's, from PyPI: random games, FENs, SANs and PGN, in both directions.

usage: chess_rules_test.py <rules_tool> [Games|Fens|Sans|Pgn]...      exit code 77: skipped, with the reason

Of a game, in every position: the legal moves and the SAN of each, FEN, check, the end by FIDE's rules and at the first
claim, and both claims. TANDEM_CHESS_GAMES says how many games (10,000 in `make test-long`; twice as many as PGN, up
to 1,000), TANDEM_CHESS_JOBS how many processes.
"""
import concurrent.futures
import io
import os
import random
import subprocess
import sys

try:
    import chess
    import chess.pgn
except ImportError as error:
    print(f"skipped: no python-chess in {sys.executable} ({error})")
    sys.exit(77)

TOOL = sys.argv[1]
GAMES = int(os.environ.get("TANDEM_CHESS_GAMES", "100"))
JOBS = int(os.environ.get("TANDEM_CHESS_JOBS", "2"))
ENDS = {"checkmate": chess.Termination.CHECKMATE, "stalemate": chess.Termination.STALEMATE,
        "insufficient material": chess.Termination.INSUFFICIENT_MATERIAL, "move rule": chess.Termination.SEVENTYFIVE_MOVES,
        "repetition": chess.Termination.FIVEFOLD_REPETITION}


def tool(*words, text=None):
    return subprocess.run([TOOL, *map(str, words)], input=text, capture_output=True, text=True, check=True).stdout


class Follower:
    """A game on python-chess's board, beside the lines of ours."""

    def __init__(self, fen):
        self.board = chess.Board(fen)
        self.keys = []   # of python-chess, by position

    def check(self, line):
        fen, moves, check, fide, first, claims, played = line.split("|")
        board = self.board
        self.keys.append(board._transposition_key())
        same("FEN", fen, board.fen(), fen)
        ours = dict(move.split("=", 1) for move in moves.split())
        legal = list(board.legal_moves)
        same("legal moves", fen, {move.uci() for move in legal}, set(ours))
        for move in legal:
            same("SAN", fen, board.san(move), ours[move.uci()])
        same("check", fen, board.is_check(), check == "check")
        outcome = board.outcome()
        word, result = fide.rsplit(" ", 1)
        same("end", fen, outcome and outcome.termination, ENDS.get(word))
        same("result", fen, outcome.result() if outcome else "*", result)
        self.check_first_claim(fen, outcome, first)
        self.check_claims(fen, claims)
        if played != "0000":
            board.push(chess.Move.from_uci(played))
        return played != "0000"

    def check_first_claim(self, fen, outcome, ours):
        word, result = ours.rsplit(" ", 1)
        if outcome and word not in ("move rule", "repetition"):
            return same("end at the first claim", fen, outcome.termination, ENDS.get(word))
        theirs = "move rule" if self.board.is_fifty_moves() else "repetition" if self.board.is_repetition(3) else "not over"
        same("end at the first claim", fen, theirs, word)
        same("result at the first claim", fen, "*" if theirs == "not over" else "1/2-1/2", result)

    def check_claims(self, fen, claims):
        same("claim of 50 moves", fen, self.board.can_claim_fifty_moves(), claims.startswith("50"))
        # python-chess takes the game back and plays it again, which is slow. It is asked where a claim is possible: where
        # some position was there twice.
        window = self.keys[-1 - self.board.halfmove_clock:]
        twice = len(set(window)) < len(window)
        same("claim of repetition", fen, twice and self.board.can_claim_threefold_repetition(), claims.endswith("3"))


def same(what, where, theirs, ours):
    assert theirs == ours, f"{what} in {where}: python-chess {theirs}, ours {ours}"


def follow(first, count):
    """Games [first, first + count): positions compared, and how the games end."""
    positions, ends, follower = 0, {}, None
    for line in tool("games", first, count).splitlines():
        if line.startswith("game "):
            follower = None
            continue
        follower = follower or Follower(line.split("|")[0])
        positions += 1
        if not follower.check(line):
            end = line.split("|")[3].rsplit(" ", 1)[0]
            ends[end] = ends.get(end, 0) + 1
    return positions, ends


def test_games():
    size = max(1, min(20, GAMES // JOBS))
    chunks = [(first, min(size, GAMES - first)) for first in range(0, GAMES, size)]
    positions, ends = 0, {}
    with concurrent.futures.ProcessPoolExecutor(JOBS) as pool:
        for part, part_ends in pool.map(follow, *zip(*chunks)):
            positions += part
            for end, n in part_ends.items():
                ends[end] = ends.get(end, 0) + n
    same("games", "all", GAMES, sum(ends.values()))
    if GAMES >= 100:
        same("ends", "all", set(ENDS), set(ends))
    return f"{GAMES} games, {positions} positions; ends: " + ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))


def random_positions(count, seed):
    draw = random.Random(seed)
    board = chess.Board()
    for _ in range(count):
        moves = list(board.legal_moves)
        if not moves or len(board.move_stack) > 150:
            board = chess.Board()
            continue
        board.push(draw.choice(moves))
        yield board, draw


def broken_fen(board, draw):
    """The position with something changed, mostly into one that can't be."""
    board = board.copy(stack=False)
    for _ in range(draw.randrange(4)):
        square = draw.randrange(64)
        piece = draw.choice("PNBRQKpnbrqk......")
        board.remove_piece_at(square) if piece == "." else board.set_piece_at(square, chess.Piece.from_symbol(piece))
    if draw.random() < .3:
        board.turn = not board.turn
    fields = board.fen().split()
    if draw.random() < .3:
        fields[2] = draw.choice(["-", "K", "Q", "k", "q", "KQkq", "Kq", "HAha", "KQ", "Gb", "BCfg"])
    if draw.random() < .3:
        fields[3] = draw.choice(chess.SQUARE_NAMES + ["e3", "d6"] * 20)
    return " ".join(fields)


def their_verdict(fen):
    try:
        board = chess.Board(fen)
    except ValueError:
        return "syntax"
    names = {flag.name.lower().replace("_", "-") for flag in chess.Status if flag & board.status() and flag.name != "VALID"}
    # It forgets a right to castle long that is given to a side without a rook on its first rank.
    for letter, side, rank in (("Q", chess.WHITE, chess.BB_RANK_1), ("q", chess.BLACK, chess.BB_RANK_8)):
        if letter in fen.split()[2] and not board.pieces_mask(chess.ROOK, side) & rank:
            names.add("bad-castling-rights")
    return names or board.fen()


def test_fens(count=6000):
    fens = [broken_fen(board, draw) for board, draw in random_positions(count, 3)]
    texts = []   # and such as are no FEN
    draw = random.Random(4)
    for fen in fens[:1500]:
        at = draw.randrange(len(fen))
        texts.append(fen[:at] + draw.choice("/19xKk -~") + fen[at + draw.randrange(2):])
    texts = [text for text in texts if "k~" not in text.lower()]   # a promoted king, which python-chess takes for none
    broken, seen = 0, set()
    for fen, ours in zip(fens + texts, tool("fens", text="".join(fen + "\n" for fen in fens + texts)).splitlines(), strict=True):
        theirs = their_verdict(fen)
        verdict = set(ours.split()) if isinstance(theirs, set) else ours
        if "too-many-kings" in theirs:   # which of them castles, the two choose otherwise
            theirs, verdict = theirs - {"bad-castling-rights"}, verdict - {"bad-castling-rights"}
        same("verdict", repr(fen), theirs, verdict)
        broken += isinstance(theirs, set)
        seen |= theirs if isinstance(theirs, set) else {theirs == "syntax" and theirs}
    # python-chess has further rules, of other games.
    missing = {"no-white-king", "no-black-king", "too-many-kings", "pawns-on-backrank", "bad-castling-rights", "invalid-ep-square",
               "opposite-check", "too-many-checkers", "impossible-check", "syntax"} - seen
    assert not missing, f"never seen: {missing}"
    return f"{len(fens) + len(texts)} FENs, {broken} of impossible positions"


def changed_san(san, draw):
    """As people write it, or wrong."""
    change = draw.randrange(8)
    at = draw.randrange(len(san))
    if change < 2:
        return san
    if change == 2:
        return san.replace("x", "").replace("=", "")
    if change == 3:
        return san.rstrip("+#") + draw.choice(["+", "#", ""])
    if change == 4:
        return san.replace("O", "0")
    if change == 5:
        return san[:at] + draw.choice("abcdefgh12345678KQRBNx-+#=Ooq") + san[at:]
    if change == 6:
        return san[:at] + san[at + 1:]
    return san[:at] + draw.choice("abcdefgh12345678KQRBNx-+#=Ooq") + san[at + 1:]


def their_reading(board, text):
    try:
        move = board.parse_san(text)
    except chess.InvalidMoveError:
        return "unreadable"
    except chess.IllegalMoveError:
        return "illegal"
    except chess.AmbiguousMoveError:
        return "ambiguous"
    return move.uci() if move else "unreadable"   # of no move at all, which we do not read


def test_sans(count=3000):
    asked, expected = [], []
    for board, draw in random_positions(count, 5):
        moves = list(board.legal_moves)
        for _ in range(3 if moves else 0):
            move = draw.choice(moves)
            text = changed_san(draw.choice([board.san(move), board.lan(move), board.san(move), move.uci()]), draw)
            asked.append(f"{board.fen()}|{text}\n")
            expected.append(their_reading(board, text))
    for line, theirs, ours in zip(asked, expected, tool("sans", text="".join(asked)).splitlines(), strict=True):
        same("reading", repr(line), theirs, ours)
    assert {"unreadable", "illegal", "ambiguous"} <= set(expected)
    return f"{len(asked)} texts, {sum(len(reading) < 6 for reading in expected)} of them legal moves"


def test_pgn():
    count = min(1000, 2 * GAMES)
    text = tool("write-pgn", count)
    stream, moves = io.StringIO(text), 0
    for number in range(count):
        game = chess.pgn.read_game(stream)
        assert game is not None and not game.errors, (number, game and game.errors)
        same("White", number, game.headers["White"], f"player {number}")
        board = game.end().board()
        same("result", number, board.result(), game.headers["Result"])
        moves += len(board.move_stack)
    assert chess.pgn.read_game(stream) is None
    return f"python-chess reads {count} games of ours, {moves} moves; {they_write_we_read(count)}"


def they_write_we_read(count):
    draw, texts, expected = random.Random(6), [], []
    for number in range(count):
        game = chess.pgn.Game()
        game.headers["Event"] = 'a "name" \\ of theirs'
        game.headers["White"] = f"player {number}"
        if number % 3 == 1:
            game.setup(chess.Board("r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R b KQkq - 3 17"))
        board, node = game.board(), game
        for _ in range(draw.randrange(120)):
            moves = list(board.legal_moves)
            if not moves:
                break
            if len(moves) > 1 and draw.random() < .1:   # a variation, with a comment and another inside
                aside = node.add_variation(moves[0], comment="a ( comment [%clk 1:00]", nags=[1, 14])
                for reply in list(aside.board().legal_moves)[:2]:
                    aside.add_variation(reply)
            move = draw.choice(moves)
            while node.has_variation(move):
                node.remove_variation(move)
            node = node.add_main_variation(move, comment="good ; move" if draw.random() < .1 else "")
            board.push(move)
        game.headers["Result"] = draw.choice(["1-0", "0-1", "1/2-1/2", "*"])
        texts.append(str(game) + "\n\n")
        expected.append("|".join([" ".join(move.uci() for move in board.move_stack), board.fen(), game.headers["Result"],
                                  game.headers["White"], game.headers["Event"]]))
    lines = tool("read-pgn", text="".join(texts)).splitlines()
    for number, (theirs, ours) in enumerate(zip(expected, lines, strict=True)):
        same("game", texts[number], theirs, ours)
    return f"we read {count} of theirs"


def main():
    names = sys.argv[2:] or ["Games", "Fens", "Sans", "Pgn"]
    for name in names:
        print(f"ok {name}: {globals()['test_' + name.lower()]()}", flush=True)


if __name__ == "__main__":
    main()
