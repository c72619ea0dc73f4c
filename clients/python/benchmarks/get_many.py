"""Objects/s and client CPU an object: `get_many` against boto3's `get_object`, one by one and in 32 threads.

Starts SeaweedFS and a gateway of its own, puts the objects, and reads them all by each way in turn, round after round, from
one endpoint (the gateway). Every body is compared. CPU is user and system time of this process, all its threads.

    python3 clients/python/benchmarks/get_many.py [--objects 2000] [--size 10240] [--rounds 5] [--json]

with the packages of `tests/requirements.txt`, and BATCHGATE_BIN naming a release build.
"""

import argparse
import functools
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "src"), str(HERE.parents[3] / "tests" / "e2e")]

import boto3  # noqa: E402
from botocore.config import Config  # noqa: E402
from support.gateway import BINARY, Backend, Gateway, settings  # noqa: E402
from support.store import SeaweedFs, Target  # noqa: E402

import batchgate  # noqa: E402

BUCKET = "bench"
THREADS = 32
BATCHES = (128, 1024)
Way = Callable[[Sequence[str]], Iterator[bytes]]


def boto3_client(target: Target, connections: int) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=target.endpoint,
        region_name=target.region,
        aws_access_key_id=target.credentials.access_key,
        aws_secret_access_key=target.credentials.secret_key,
        config=Config(s3={"addressing_style": "path"}, max_pool_connections=connections),
    )


def boto3_get(client: Any, key: str) -> bytes:
    body: bytes = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return body


def one_by_one(client: Any, keys: Sequence[str]) -> Iterator[bytes]:
    return map(functools.partial(boto3_get, client), keys)


def in_threads(client: Any, pool: ThreadPoolExecutor, keys: Sequence[str]) -> Iterator[bytes]:
    return pool.map(functools.partial(boto3_get, client), keys)


def get_many(client: batchgate.Client, keys: Sequence[str]) -> Iterator[bytes]:
    return (part.data for part in client.get_many(keys))


def ways(target: Target, pool: ThreadPoolExecutor) -> dict[str, Way]:
    pair = target.credentials
    found: dict[str, Way] = {
        "boto3 get_object, one by one": functools.partial(one_by_one, boto3_client(target, 1)),
        f"boto3 get_object, {THREADS} threads": functools.partial(in_threads, boto3_client(target, THREADS), pool),
    }
    for entries in BATCHES:
        client = batchgate.Client(
            endpoint_url=target.endpoint,
            bucket=BUCKET,
            region_name=target.region,
            aws_access_key_id=pair.access_key,
            aws_secret_access_key=pair.secret_key,
            entries_max=entries,
        )
        found[f"batchgate get_many, batches of {entries}"] = functools.partial(get_many, client)
    return found


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(way: Way, bodies: dict[str, bytes]) -> tuple[float, float]:
    """Objects/s and µs of CPU an object. The bodies are compared inside, which costs every way the same."""
    keys = list(bodies)
    random.shuffle(keys)
    cpu, wall = cpu_seconds(), time.perf_counter()
    count = 0
    for key, body in zip(keys, way(keys), strict=True):
        if body != bodies[key]:
            raise SystemExit(f"wrong bytes of {key}")
        count += 1
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    return count / wall, cpu / count * 1e6


def run(objects: int, size: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    made = random.Random(1)
    bodies = {f"train/{i:06}.bin": made.randbytes(size) for i in range(objects)}
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(THREADS) as pool:
        store = SeaweedFs(Path(name))
        gateway = Gateway(Path(name), settings([Backend("store", "*", store.target)]))
        try:
            writer = boto3_client(store.target, THREADS)
            writer.create_bucket(Bucket=BUCKET)
            list(pool.map(lambda item: writer.put_object(Bucket=BUCKET, Key=item[0], Body=item[1]), bodies.items()))
            all_ways = ways(gateway.s3, pool)
            for way in all_ways.values():
                measure(way, dict(list(bodies.items())[:256]))
            for _ in range(rounds):
                for title, way in all_ways.items():
                    rate, cpu = measure(way, bodies)
                    into = results.setdefault(title, {"objects_per_second": [], "cpu_us_per_object": []})
                    into["objects_per_second"].append(rate)
                    into["cpu_us_per_object"].append(cpu)
        finally:
            gateway.stop()
            store.stop()
    return results


def table(results: dict[str, dict[str, list[float]]]) -> str:
    baseline = statistics.median(next(iter(results.values()))["cpu_us_per_object"])
    lines = ["| | objects/s | client CPU an object, µs | less CPU than one by one |", "|---|---|---|---|"]
    for title, figures in results.items():
        rate, cpu = figures["objects_per_second"], figures["cpu_us_per_object"]
        lines.append(
            f"| {title} | {statistics.median(rate):,.0f} ({min(rate):,.0f} to {max(rate):,.0f}) "
            f"| {statistics.median(cpu):,.1f} ({min(cpu):,.1f} to {max(cpu):,.1f}) "
            f"| {baseline / statistics.median(cpu):,.1f}x |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--size", type=int, default=10240, help="bytes of an object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="every figure of every round")
    asked = parser.parse_args()
    results = run(asked.objects, asked.size, asked.rounds)
    if asked.json:
        print(json.dumps({"objects": asked.objects, "size_bytes": asked.size, "ways": results}, indent=1))
        return
    print(f"{asked.objects} objects of {asked.size} bytes, {asked.rounds} rounds, {BINARY.name}; median (spread):\n")
    print(table(results))


if __name__ == "__main__":
    main()
