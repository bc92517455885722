// world/chess/moves_pext.cc -- the variant of move_functions.h for x86-64 with a fast PEXT: what a sliding piece
// attacks is looked up in a table. Compiled with -mpopcnt -mbmi -mbmi2.
//
// PEXT gathers the occupied squares that matter (the piece's lines but for their last squares, 5 to 12 of them) into an
// index. An entry is 16 bits, the attacked squares of the lines gathered likewise, and PDEP spreads them again: 210 KB
// instead of 840 for whole bitboards, as fast, and less of the cache is taken from others.
#include "world/chess/move_functions_of.h"

namespace tandem::chess {

#if defined(__POPCNT__) && defined(__BMI__) && defined(__BMI2__)
namespace {

struct Lines {
  Bitboard relevant;  // where a piece in the way changes what is attacked
  Bitboard all;
  uint32_t first;  // entry
};

// Filled before pext_moves() gives out what reads it.
Lines diagonal_lines[64], straight_lines[64];
uint16_t attacked_of_lines[5248 + 102400];  // bishops, then rooks: the sums of 2^relevant over all squares

struct PextSliders {
  TANDEM_HD static Bitboard look_up(const Lines& lines, Bitboard occupied) {
    return __builtin_ia32_pdep_di(attacked_of_lines[lines.first + __builtin_ia32_pext_di(occupied, lines.relevant)],
                                  lines.all);
  }
  TANDEM_HD static Bitboard diagonal(Square square, Bitboard occupied) {
    return look_up(diagonal_lines[square], occupied);
  }
  TANDEM_HD static Bitboard straight(Square square, Bitboard occupied) {
    return look_up(straight_lines[square], occupied);
  }
};

template <class Attacks>
uint32_t fill(Lines (&lines)[64], uint32_t first, const Attacks& attacks) {
  for (Square square = 0; square < 64; ++square) {
    const Bitboard edges =
        ((kRank1 | kRank8) & ~rank_mask(rank_of(square))) | ((kFileA | kFileH) & ~file_mask(file_of(square)));
    const Bitboard all = attacks(square, 0), relevant = all & ~edges;
    lines[square] = {relevant, all, first};
    Bitboard occupied = 0;
    do {  // every subset of the relevant squares, in the order of its index
      attacked_of_lines[first++] = static_cast<uint16_t>(__builtin_ia32_pext_di(attacks(square, occupied), all));
      occupied = (occupied - relevant) & relevant;
    } while (occupied);
  }
  return first;
}

bool fill_all() {
  // Lambdas of this file: a pointer to a function of sliders.h would leave it here for the linker, with our
  // instructions.
  const auto diagonal = [](Square square, Bitboard occupied) { return ComputedSliders::diagonal(square, occupied); };
  const auto straight = [](Square square, Bitboard occupied) { return ComputedSliders::straight(square, occupied); };
  fill(straight_lines, fill(diagonal_lines, 0, diagonal), straight);
  return true;
}

// Before Zen 3, AMD's PEXT and PDEP are microcode: hundreds of cycles.
bool cpu_has_fast_pext() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2") && !__builtin_cpu_is("bdver4");
}

}  // namespace

const MoveFunctions* pext_moves() {
  static constexpr MoveFunctions functions = MoveFunctionsOf<PextSliders>::named("pext");
  static const bool here = cpu_has_fast_pext() && fill_all();
  return here ? &functions : nullptr;
}
#else
const MoveFunctions* pext_moves() { return nullptr; }
#endif

}  // namespace tandem::chess
