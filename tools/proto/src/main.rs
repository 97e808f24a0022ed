//! Writes `crates/proto/src/generated.rs` from `proto/isochrone/v1/isochrone.proto`, and beside it `descriptors.bin`, what
//! gRPC's reflection tells of all that a node serves: `make proto`.
//!
//! The results are checked in, so that nobody who builds Isochrone needs a compiler of protocol buffers.

use std::error::Error;
use std::path::Path;

/// What the code is for, and what else nodes serve, by hand.
const OWN: &str = "isochrone/v1/isochrone.proto";
const HEALTH: &str = "grpc/health/v1/health.proto";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let include = root.join("proto");
    let out = root.join("crates/proto/src");
    // With comments: tools show them.
    let descriptors = protox::Compiler::new([&include])?
        .include_source_info(true)
        .include_imports(true)
        .open_files([OWN, HEALTH])?
        .encode_file_descriptor_set();
    std::fs::write(out.join("descriptors.bin"), descriptors)?;
    let files = protox::compile([OWN], [&include])?;
    // Without `build_transport`: nodes need no client's connections, and clients no server's.
    tonic_prost_build::configure().build_transport(false).bytes(".").out_dir(&out).compile_fds(files)?;
    // The name that the package gives the file is no name for a module.
    std::fs::rename(out.join("isochrone.v1.rs"), out.join("generated.rs"))?;
    Ok(())
}
