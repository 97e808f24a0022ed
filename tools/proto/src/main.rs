//! Writes `crates/proto/src/generated.rs` from `proto/isochrone/v1/isochrone.proto`: `make proto`.
//!
//! The result is checked in, so that nobody who builds Isochrone needs a compiler of protocol buffers.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = protox::compile(["isochrone/v1/isochrone.proto"], [root.join("proto")])?;
    let out = root.join("crates/proto/src");
    // Without `build_transport`: nodes need no client's connections, and clients no server's.
    tonic_prost_build::configure().build_transport(false).bytes(".").out_dir(&out).compile_fds(files)?;
    // The name that the package gives the file is no name for a module.
    std::fs::rename(out.join("isochrone.v1.rs"), out.join("generated.rs"))?;
    Ok(())
}
