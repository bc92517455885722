"""Writes wanted columns of the Parquet file that is open as descriptor 3 to stdout, as CSV with a header.

arguments: required columns, then others, each joined by commas; names are compared without regard to case
exit code: 0 all written; 10 no pyarrow; 11 no Parquet file; 12 columns are missing; 13 something else. Why is on stderr.
"""
import sys


def end(code, why):
    sys.stderr.write(" ".join(str(why).split()))
    sys.exit(code)


def as_text(pa, pc, column):
    """Dates of all kinds as YYYY-MM-DD, numbers as double, the rest as text."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_text(pa, pc, column.cast(kind.value_type))
    if pa.types.is_timestamp(kind):  # in its own time zone
        return pc.strftime(column, format="%Y-%m-%d")
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.string())
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return column.cast(pa.float64())
    return column if pa.types.is_integer(kind) else column.cast(pa.string())


def main():
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.csv
        import pyarrow.parquet as pq
    except ImportError as error:
        end(10, error)
    try:
        file = pq.ParquetFile(open(3, "rb"))
    except (pa.ArrowException, OSError) as error:
        end(11, error)
    here = {}
    for name in file.schema_arrow.names:
        here.setdefault(name.strip().lower(), name)
    required, others = (word.split(",") if word else [] for word in sys.argv[1:3])
    missing = [name for name in required if name not in here]
    if missing:
        end(12, f"it lacks {', '.join(missing)}; it has: {', '.join(file.schema_arrow.names[:12])}")
    wanted = required + [name for name in others if name in here]
    writer = None
    for batch in file.iter_batches(columns=[here[name] for name in wanted]):
        columns = [as_text(pa, pc, batch.column(batch.schema.names.index(here[name]))) for name in wanted]
        table = pa.record_batch(columns, names=wanted)
        writer = writer or pyarrow.csv.CSVWriter(sys.stdout.buffer, table.schema)
        writer.write_batch(table)
    if writer:
        writer.close()
    else:
        sys.stdout.write(",".join(wanted) + "\n")


try:
    main()
except BrokenPipeError:
    sys.exit(1)
except Exception as error:  # of pyarrow: columns of a kind that has no text, damaged pages
    end(13, f"{type(error).__name__}: {error}")
