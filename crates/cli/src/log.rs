//! Logs: on standard error, text or JSON, as much as `RUST_LOG` says.

use crate::Usage;
use crate::arguments::Format;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Text or one JSON object a line; with `--format json` it is JSON, whatever this says.
const FORMAT: &str = "ISOCHRONE_LOG_FORMAT";

/// What the engine of the snapshots says of each one at `info` tells nobody anything.
const QUIET: &str = "fjall=warn,lsm_tree=warn";

/// Begins to log; what is below `default` is left out unless `RUST_LOG` asks for it.
///
/// # Errors
/// A variable that means nothing.
pub(crate) fn start(default: &str, format: Format) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => text.parse::<EnvFilter>().map_err(|error| {
            Usage(format!("RUST_LOG={text}: {error}; e.g. info or isochrone_node=debug,warn"))
        })?,
        _ => EnvFilter::new(format!("{default},{QUIET}")),
    };
    let colours =
        std::env::var_os("NO_COLOR").is_none_or(|text| text.is_empty()) && std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // It would complain of a closed standard error on standard error, which ends the thread.
    let log = log.log_internal_errors(false);
    let json = match std::env::var(FORMAT).as_deref() {
        Ok("json") => true,
        Ok("text" | "") | Err(_) => format == Format::Json,
        Ok(other) => return Err(Usage(format!("{FORMAT}={other}: use text or json")).into()),
    };
    if json {
        log.json().flatten_event(true).init()
    } else {
        log.init()
    }
    Ok(())
}
