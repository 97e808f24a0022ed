//! Scores as points on the earth, in replies.

use super::reply::Reply;
use isochrone_core::command::{Response, Score, plain};
use isochrone_core::geo::{Point, Unit};

/// What is said of points.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Places {
    /// Where each of these scores is.
    Positions,
    /// The geohash of each.
    Hashes,
    /// How far the two are from each other.
    Distance(Unit),
    /// Of each that was found, its name and these details.
    Found(Details),
}

/// What is said of a place that was found.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub(crate) struct Details {
    pub(crate) distance: bool,
    pub(crate) hash: bool,
    pub(crate) coordinates: bool,
}

impl Details {
    /// Whether anything is said beside its name.
    pub(crate) fn any(self) -> bool {
        self != Details::default()
    }
}

impl Places {
    /// Writes the reply from the parts of an answer.
    pub(crate) fn lay_out(self, parts: &[Response], reply: &mut Reply<'_>) {
        let score = |part: &Response| match part {
            Response::Double(score) => Some(*score),
            _ => None,
        };
        match self {
            Places::Positions => {
                reply.array(parts.len());
                for part in parts {
                    match score(part) {
                        Some(score) => position(score, reply),
                        None => reply.null_array(),
                    }
                }
            }
            Places::Hashes => {
                reply.array(parts.len());
                for part in parts {
                    match score(part) {
                        Some(score) => reply.bulk(&Point::of_score(score).geohash()),
                        None => reply.null(),
                    }
                }
            }
            Places::Distance(unit) => match parts {
                [Response::Double(one), Response::Double(other)] => {
                    let distance = Point::of_score(*one).distance(Point::of_score(*other));
                    length(distance / unit.meters(), reply);
                }
                _ => reply.null(),
            },
            Places::Found(details) => {
                reply.array(parts.len());
                for part in parts {
                    match part {
                        Response::Array(parts) => found(details, parts, reply),
                        _ => reply.error(BUG),
                    }
                }
            }
        }
    }
}

const BUG: &str =
    "ERR a search answered with something else than members, distances and scores; this is a bug";

fn found(details: Details, parts: &[Response], reply: &mut Reply<'_>) {
    let [Response::Bulk(member), Response::Double(distance), Response::Double(score)] = parts else {
        return reply.error(BUG);
    };
    let Details { distance: far, hash, coordinates } = details;
    reply.array(1 + usize::from(far) + usize::from(hash) + usize::from(coordinates));
    reply.bulk(member);
    if far {
        length(distance.get(), reply);
    }
    if hash {
        reply.integer(score.get() as i64);
    }
    if coordinates {
        position(*score, reply);
    }
}

/// A distance: a string in both versions of the protocol.
fn length(distance: f64, reply: &mut Reply<'_>) {
    reply.text(format_args!("{distance:.4}"));
}

fn position(score: Score, reply: &mut Reply<'_>) {
    let Point { longitude, latitude } = Point::of_score(score);
    reply.array(2);
    reply.decimal(plain(longitude));
    reply.decimal(plain(latitude));
}
