//! `isochrone plan`: what the distances allow, and which leader to choose.

use crate::arguments::{Format, Plan};
use crate::output::{print_json, print_text};
use crate::{Status, protocols};
use isochrone_core::Deployment;

/// Runs the verb.
pub(crate) fn run(arguments: Plan) -> anyhow::Result<Status> {
    let deployment = Deployment::load(&arguments.file, &protocols::known())?;
    let plan = isochrone_plan::plan(&deployment, deployment.choose_keyspace(None)?)?;
    match arguments.format {
        Format::Json => print_json(&plan)?,
        Format::Text => print_text(&plan.to_string())?,
    }
    Ok(Status::Held)
}
