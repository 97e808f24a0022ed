"""The published `.proto` against a running cluster: compiled as any user would, nothing of ours beside it."""

import importlib
import pathlib
import sys

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "target" / "clients-proto"
KEYSPACE = "main"


def generated():
    """The messages and the stubs of `proto/isochrone/v1/isochrone.proto`."""
    OUT.mkdir(parents=True, exist_ok=True)
    source = ROOT / "proto"
    command = ["protoc", f"-I{source}", f"--python_out={OUT}", f"--grpc_python_out={OUT}",
               str(source / "isochrone" / "v1" / "isochrone.proto")]
    if protoc.main(command) != 0:
        raise RuntimeError("the published .proto does not compile")
    sys.path.insert(0, str(OUT))
    return (importlib.import_module("isochrone.v1.isochrone_pb2"),
            importlib.import_module("isochrone.v1.isochrone_pb2_grpc"))


def same(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def refused(call, message, code, words):
    """The call fails with this status, whose message says these words."""
    try:
        answer = call(message, timeout=30)
    except grpc.RpcError as error:
        same(error.code(), code)
        assert words in error.details(), f"{error.details()!r} does not say {words!r}"
    else:
        raise AssertionError(f"{answer} instead of {code}: {words}")


def check(addresses, redis):
    """Every method of the service, at nodes of two regions; `redis` is a client of the same keyspace."""
    pb, stubs = generated()
    with grpc.insecure_channel(addresses[0]) as one, grpc.insecure_channel(addresses[1]) as other:
        here, there = stubs.IsochroneStub(one), stubs.IsochroneStub(other)
        transactions(pb, here, there)
        refusals(pb, here, there)
        commands(pb, here, there, redis)
        reflected(one)


def begin(pb, stub, reads, writes):
    """A transaction that is open, tried until it is."""
    for _ in range(100):
        answer = stub.Begin(pb.BeginRequest(keyspace=KEYSPACE, reads=reads, writes=writes), timeout=30)
        if answer.WhichOneof("outcome") != "aborted":
            return answer
    raise AssertionError("aborted 100 times")


def committed(pb, stub, reads, writes, update):
    """Transfers as in the documentation: begin, compute, commit, again where it was aborted."""
    for _ in range(100):
        begun = begin(pb, stub, reads, writes).begun
        updates = update({read.key: read for read in begun.reads})
        ended = stub.Commit(pb.CommitRequest(txn=begun.txn, updates=updates), timeout=30)
        outcome = ended.WhichOneof("outcome")
        assert outcome in ("committed", "aborted"), ended
        if outcome == "committed":
            return ended.committed.at
    raise AssertionError("aborted 100 times")


def transactions(pb, here, there):
    def opened(_):
        return [pb.Update(key=b"ana", value=b"70"), pb.Update(key=b"bo", value=b"30"), pb.Update(key=b"gone", value=b"")]

    first = committed(pb, here, [], [b"ana", b"bo", b"gone"], opened)

    seen = {}

    def paid(reads):
        # Replicas nearby may lag behind: what was read is only sure once the transaction has committed.
        seen.update(reads)
        # Without a value: deleted.
        return [pb.Update(key=b"ana", value=b"40"), pb.Update(key=b"bo", value=b"60"), pb.Update(key=b"gone")]

    second = committed(pb, there, [b"ana", b"bo", b"gone"], [b"ana", b"bo", b"gone"], paid)
    assert second > first > 0, (first, second)
    same((seen[b"ana"].value, seen[b"bo"].value, seen[b"gone"].HasField("value")), (b"70", b"30", True))
    same(seen[b"ana"].version, first)
    seen = begin(pb, here, [b"bo", b"ana", b"gone", b"never"], [])
    same(seen.WhichOneof("outcome"), "snapshot")
    reads = seen.snapshot.reads
    same([read.key for read in reads], [b"bo", b"ana", b"gone", b"never"])
    same([read.HasField("value") for read in reads], [True, True, False, False])
    same((reads[0].value, reads[0].version, reads[3].version), (b"60", second, 0))
    assert seen.snapshot.at >= second

    given_up = begin(pb, here, [b"ana"], [b"ana"]).begun
    here.Abort(pb.AbortRequest(txn=given_up.txn), timeout=30)
    late = pb.CommitRequest(txn=given_up.txn, updates=[pb.Update(key=b"ana", value=b"0")])
    refused(here.Commit, late, grpc.StatusCode.FAILED_PRECONDITION, "is not open here")
    same(here.Get(pb.GetRequest(keyspace=KEYSPACE, key=b"ana"), timeout=30).value, b"40")


def refusals(pb, here, there):
    code = grpc.StatusCode
    refused(here.Begin, pb.BeginRequest(keyspace="nowhere", reads=[b"a"]), code.NOT_FOUND, "there is no keyspace")
    refused(here.Begin, pb.BeginRequest(keyspace=KEYSPACE), code.INVALID_ARGUMENT, "name some")
    refused(here.Begin, pb.BeginRequest(keyspace=KEYSPACE, reads=[b"a", b"a"]), code.INVALID_ARGUMENT, "comes twice")
    refused(here.Commit, pb.CommitRequest(txn=b"x"), code.INVALID_ARGUMENT, "what Begin has answered")
    begun = begin(pb, here, [], [b"declared"]).begun
    elsewhere = pb.CommitRequest(txn=begun.txn)
    refused(there.Commit, elsewhere, code.FAILED_PRECONDITION, "another node")
    undeclared = pb.CommitRequest(txn=begun.txn, updates=[pb.Update(key=b"other", value=b"1")])
    refused(here.Commit, undeclared, code.INVALID_ARGUMENT, "was not declared for writing")
    # It is open still.
    here.Abort(pb.AbortRequest(txn=begun.txn), timeout=30)
    refused(here.Execute, pb.ExecuteRequest(keyspace=KEYSPACE), code.INVALID_ARGUMENT, "no words")


def commands(pb, here, there, redis):
    put = here.Put(pb.PutRequest(keyspace=KEYSPACE, key=b"n", value=b"41"), timeout=30)
    assert not put.HasField("unknown")

    def execute(*words):
        answer = there.Execute(pb.ExecuteRequest(keyspace=KEYSPACE, words=[w.encode() for w in words]), timeout=30)
        return answer.reply

    same(execute("INCR", "n").integer, 42)
    same(redis.get("n"), "42")
    assert execute("LPUSH", "n", "x").error.startswith("WRONGTYPE")
    redis.hset("h", mapping={"a": "1"})
    same([(p.key.bytes, p.value.bytes) for p in execute("HGETALL", "h").map.pairs], [(b"a", b"1")])
    same(execute("ZADD", "z", "1.5", "m").integer, 1)
    same(execute("ZSCORE", "z", "m").double, 1.5)
    same([value.bytes for value in execute("MGET", "n", "n").list.values], [b"42", b"42"])
    same(execute("GET", "absent").WhichOneof("kind"), "null")
    same(here.Delete(pb.DeleteRequest(keyspace=KEYSPACE, key=b"n"), timeout=30).existed, True)
    same(there.Get(pb.GetRequest(keyspace=KEYSPACE, key=b"n"), timeout=30).HasField("value"), False)
    redis.delete("h", "z")


def reflected(channel):
    """What the node tells of its services is enough to call them, without the `.proto`."""
    told = ProtoReflectionDescriptorDatabase(channel)
    services = sorted(told.get_services())
    same([name for name in services if ".reflection." not in name], ["grpc.health.v1.Health", "isochrone.v1.Isochrone"])
    service = descriptor_pool.DescriptorPool(told).FindServiceByName("isochrone.v1.Isochrone")

    def call(name, **fields):
        method = service.methods_by_name[name]
        asked, answered = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        path = f"/{service.full_name}/{name}"
        stub = channel.unary_unary(path, request_serializer=asked.SerializeToString, response_deserializer=answered.FromString)
        return stub(asked(keyspace=KEYSPACE, **fields), timeout=30)

    call("Put", key=b"told", value=b"1")
    same(call("Get", key=b"told").value, b"1")
    same(call("Delete", key=b"told").existed, True)
