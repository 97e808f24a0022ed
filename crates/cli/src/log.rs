//! Logs: on standard error, text or JSON, as much as `RUST_LOG` says.

use crate::Usage;
use crate::arguments::Format;
use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Text or one JSON object a line; with `--format json` it is JSON, whatever this says.
const FORMAT: &str = "ISOCHRONE_LOG_FORMAT";

/// What the engine of the snapshots says of each one below `warn` tells nobody anything: whoever wants it names it.
const QUIET: &str = "fjall=warn,lsm_tree=warn";

/// Begins to log; what is below `default` is left out unless `RUST_LOG` asks for it.
///
/// # Errors
/// A variable that means nothing.
pub(crate) fn start(default: &str, format: Format) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => filter(&text).map_err(|error| {
            Usage(format!("RUST_LOG={text}: {error}; e.g. info or isochrone_node=debug,warn"))
        })?,
        _ => filter(default)?,
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

/// What this lets through; with a level for all, of the engine only what is [`QUIET`] or named.
fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    // Of two for the same target the last one counts.
    let mut parts = text.split(',').rev().filter(|part| !part.is_empty());
    match parts.find_map(|part| part.parse::<LevelFilter>().ok()) {
        Some(level) if level > LevelFilter::WARN => format!("{QUIET},{text}").parse(),
        _ => text.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::{Level, enabled};

    #[test]
    fn the_engine_of_the_snapshots_is_quiet_unless_it_is_named() {
        for (text, engine, node) in [
            ("info", Level::WARN, Level::INFO),
            ("INFO", Level::WARN, Level::INFO),
            ("debug", Level::WARN, Level::DEBUG),
            ("isochrone_node=debug,info", Level::WARN, Level::DEBUG),
            ("info,lsm_tree=debug", Level::DEBUG, Level::INFO),
            ("lsm_tree::tree=info,info", Level::INFO, Level::INFO),
            ("warn", Level::WARN, Level::WARN),
            ("error", Level::ERROR, Level::ERROR),
        ] {
            let log = tracing_subscriber::fmt().with_env_filter(filter(text).unwrap()).finish();
            tracing::subscriber::with_default(log, || {
                let engines = [
                    enabled!(target: "lsm_tree::tree", Level::ERROR),
                    enabled!(target: "lsm_tree::tree", Level::WARN),
                    enabled!(target: "lsm_tree::tree", Level::INFO),
                    enabled!(target: "lsm_tree::tree", Level::DEBUG),
                ];
                let nodes = [
                    enabled!(target: "isochrone_node::reactor", Level::ERROR),
                    enabled!(target: "isochrone_node::reactor", Level::WARN),
                    enabled!(target: "isochrone_node::reactor", Level::INFO),
                    enabled!(target: "isochrone_node::reactor", Level::DEBUG),
                ];
                let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG];
                assert_eq!(engines, levels.map(|level| level <= engine), "{text}");
                assert_eq!(nodes, levels.map(|level| level <= node), "{text}");
            });
        }
        assert!(filter("info,what=ever").is_err());
    }
}
