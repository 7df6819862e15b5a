"""The programs of "With other libraries" run against these libraries."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from clean_processes import call, together
from orbithash.index import ENGINES
from orbithash.losses import OrderAwareTripletLoss

PAGE = Path(__file__).parents[1] / "docs/how-to/other-libraries.md"
NEEDED = {
    "A plain loop": [],
    "pytorch-metric-learning": ["pytorch_metric_learning"],
    "accelerate": ["accelerate"],
    "scikit-learn": [],
    "Search engines": ["faiss", "usearch"],
    "A table of embeddings": ["pyarrow"],
}

pytestmark = pytest.mark.slow


def programs(section: str) -> str:
    """Return the programs of a section, after that of the page's first lines."""
    start, *sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    (text,) = [text for text in sections if text.startswith(f"{section}\n")]
    return "\n".join(re.findall(r"```py\n(.*?)```", start + text, re.DOTALL))


@pytest.mark.parametrize("section", NEEDED)
def test_a_sections_program_runs(section, tmp_path, monkeypatch):
    for library in NEEDED[section]:
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(programs(section), section, "exec"), names)
    CHECKS.get(section, lambda names: None)(names)


def faiss_finds_what_our_engine_finds(names):
    engine = ENGINES["exact"](n_bits=64)
    engine.add(np.arange(400), names["codes"])
    found = engine.search(names["codes"][:5], k=10)
    np.testing.assert_array_equal(names["distances"], found.distances)
    assert (names["matches"].distances == found.distances[0]).mean() >= 0.9  # it is approximate


def the_best_number_of_bits_is_found(names):
    assert names["search"].best_params_["iterativequantization__n_bits"] in (16, 32)
    assert names["search"].best_score_ > 0.3


CHECKS = {
    "Search engines": faiss_finds_what_our_engine_finds,
    "scikit-learn": the_best_number_of_bits_is_found,
}


def test_the_memory_of_pytorch_metric_learning_gives_the_value_of_ours():
    pytest.importorskip("pytorch_metric_learning")
    names = {}
    exec(programs("pytorch-metric-learning"), names)
    memory = names["Memory"](names["OrderAware"](), embedding_size=16, memory_size=60)
    rng = torch.Generator().manual_seed(0)
    batches = [
        (torch.rand(20, 16, generator=rng), torch.randint(4, (20,), generator=rng))
        for _ in range(3)
    ]
    for embeddings, labels in batches:
        value = memory(embeddings, labels)
    held, labels_held = (torch.cat(parts) for parts in zip(*batches, strict=True))
    ours = OrderAwareTripletLoss()(*batches[-1], ref_emb=held, ref_labels=labels_held)
    torch.testing.assert_close(value, ours)


def wrapped_in_a_process(environment, folder):
    os.environ.update(environment)
    torch.distributed.init_process_group("gloo")
    names = {}
    exec(programs("pytorch-metric-learning"), names)
    rank = torch.distributed.get_rank()
    embeddings, labels = whole_batch()
    own = embeddings[rank::2].clone().requires_grad_()
    value = names["loss"](own, labels[rank::2])
    value.backward()
    torch.save((value.detach(), own.grad), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def whole_batch():
    rng = torch.Generator().manual_seed(1)
    return torch.rand(40, 16, generator=rng), torch.randint(4, (40,), generator=rng)


def test_two_processes_with_their_wrapper_get_the_gradient_of_the_whole_batch(tmp_path):
    pytest.importorskip("pytorch_metric_learning")
    with together(2) as environments:
        processes = [call(wrapped_in_a_process, each, tmp_path) for each in environments]
        for process in processes:
            process.join()
            assert process.exitcode == 0
    embeddings, labels = whole_batch()
    embeddings.requires_grad_()
    loss = OrderAwareTripletLoss()(embeddings, labels)
    loss.backward()
    for rank in (0, 1):
        value, gradient = torch.load(tmp_path / f"{rank}.pt")
        # The wrapper multiplies by the processes, over which DDP averages.
        torch.testing.assert_close(value, 2 * loss.detach())
        torch.testing.assert_close(gradient, 2 * embeddings.grad[rank::2])


@pytest.fixture
def postgres():
    """A function that runs SQL in a new PostgreSQL server on a socket, by Debian's programs."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not folders:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    binaries = folders[-1].parent
    owner = {}
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        owner = {"user": "postgres", "group": "postgres"}
        shutil.chown(folder, **owner)

    def command(*arguments, **options):
        return subprocess.run(
            list(map(str, arguments)),
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            **owner,
            **options,
        )

    data = folder / "data"
    command(binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync")
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    command(binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")

    def sql(text, **variables):
        settings = [f"--set={name}={value}" for name, value in variables.items()]
        psql = ("psql", "-h", folder, "-U", "postgres", "-X", "-A", "-t", "-q", "-F,")
        return command(*psql, "--set=ON_ERROR_STOP=1", *settings, input=text).stdout.splitlines()

    try:
        yield sql
    finally:
        command(binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


def page_sql():
    return re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def stored(postgres):
    section, names = programs("Search engines"), {"np": np}
    exec(section[section.index("def as_sql") :], names)
    codes = np.random.default_rng(0).integers(0, 256, (200, 8), dtype=np.uint8)
    table, query = page_sql()[0].split("\n", 1)
    rows = "".join(f"{i}\t{i}.jpg\t{names['as_sql'](code)}\n" for i, code in enumerate(codes))
    postgres(f"{table}\nCOPY images FROM STDIN;\n{rows}\\.\n")
    return postgres, query, codes, names["as_sql"](codes[7])


def expected(codes):
    engine = ENGINES["exact"](n_bits=64)
    engine.add(np.arange(len(codes)), codes)
    found = engine.search(codes[7:8], k=10)
    return [f"{i},{d}" for i, d in zip(found.ids[0], found.distances[0], strict=True)]


def test_postgresql_ranks_codes_as_our_engine_does(stored):
    sql, query, codes, text = stored
    assert sql(query, query=text) == expected(codes)


def test_pgvector_ranks_codes_as_our_engine_does(stored):
    sql, _, codes, text = stored
    version = sql("SELECT default_version FROM pg_available_extensions WHERE name = 'vector';")
    if not version or tuple(map(int, version[0].split("."))) < (0, 7):
        pytest.skip(f"needs pgvector 0.7 for bit_hamming_ops; there is {version or 'none'}")
    found = sql("CREATE EXTENSION vector;\n" + page_sql()[1], query=text)
    nearest = [line.partition(",")[2] for line in found]
    assert nearest == [line.partition(",")[2] for line in expected(codes)]
