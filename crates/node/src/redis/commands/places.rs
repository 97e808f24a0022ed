//! Places: sorted sets of points on the earth.

use super::Understood;
use crate::redis::args::{blob, blobs, float, is, number};
use crate::redis::complaint::Complaint;
use crate::redis::places::{Details, Places};
use crate::redis::request::Args;
use crate::redis::shape::{Plan, Shape};
use crate::redis::spec::flag::{DENYOOM, MOVABLE_KEYS, READ, WRITE};
use crate::redis::spec::{Given, Group, Keys, Spec, TWO, about};
use isochrone_core::Blob;
use isochrone_core::command::{Condition, Operation, Score, Scored, ZAddFlags};
use isochrone_core::geo::{Area, Center, Order, Point, Search, Unit};
use std::sync::Arc;

const WRITES: u16 = WRITE | DENYOOM;
const fn stored(from: usize) -> Keys {
    Keys::Stored { from, words: &["STORE", "STOREDIST"] }
}

pub(crate) static COMMANDS: &[Spec] = &[
    Group::Geo.data(
        "geoadd",
        -5,
        WRITES,
        about(
            "3.2.0",
            "key [NX|XX] [CH] longitude latitude member [longitude latitude member ...]",
            "Adds places, or moves them",
        ),
        add,
    ),
    Group::Geo.data(
        "geodist",
        -4,
        READ,
        about("3.2.0", "key member1 member2 [M|KM|FT|MI]", "How far two places are from each other"),
        |args, _| {
            let unit = match args.len() {
                4 => Unit::Meters,
                5 => unit(args.at(4))?,
                _ => return Err(Complaint::Syntax),
            };
            let members = [blob(args.at(2)), blob(args.at(3))].into();
            let operation = Operation::ZMScore { key: blob(args.at(1)), members };
            Ok(Plan { operation, shape: Shape::Places(Places::Distance(unit)) })
        },
    ),
    Group::Geo.data(
        "geohash",
        -2,
        READ,
        about("3.2.0", "key [member [member ...]]", "The geohashes of places"),
        |args, _| of_each(args, Places::Hashes),
    ),
    Group::Geo.data(
        "geopos",
        -2,
        READ,
        about("3.2.0", "key [member [member ...]]", "Where places are"),
        |args, _| of_each(args, Places::Positions),
    ),
    Group::Geo
        .data(
            "georadius",
            -6,
            WRITES | MOVABLE_KEYS,
            about(
                "3.2.0",
                "key longitude latitude radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] \
                 [ASC|DESC] [STORE key|STOREDIST key]",
                "Places around a point, perhaps stored",
            ),
            |args, _| around_point(args, true),
        )
        .with_keys(stored(6)),
    Group::Geo.data(
        "georadius_ro",
        -6,
        READ,
        about(
            "3.2.10",
            "key longitude latitude radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]",
            "Places around a point",
        ),
        |args, _| around_point(args, false),
    ),
    Group::Geo
        .data(
            "georadiusbymember",
            -5,
            WRITES | MOVABLE_KEYS,
            about(
                "3.2.0",
                "key member radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC] \
                 [STORE key|STOREDIST key]",
                "Places around one of them, perhaps stored",
            ),
            |args, _| around_member(args, true),
        )
        .with_keys(stored(5)),
    Group::Geo.data(
        "georadiusbymember_ro",
        -5,
        READ,
        about(
            "3.2.10",
            "key member radius M|KM|FT|MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]",
            "Places around one of them",
        ),
        |args, _| around_member(args, false),
    ),
    Group::Geo.data(
        "geosearch",
        -7,
        READ,
        about(
            "6.2.0",
            "key FROMMEMBER member|FROMLONLAT longitude latitude \
             BYRADIUS radius M|KM|FT|MI|BYBOX width height M|KM|FT|MI \
             [ASC|DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
            "Places in a circle or a box",
        ),
        |args, _| {
            let mut options = Options::default();
            options.read(args, 2, Allowed::Areas)?;
            options.plan(args, 1)
        },
    ),
    Group::Geo
        .data(
            "geosearchstore",
            -8,
            WRITES,
            about(
                "6.2.0",
                "destination source FROMMEMBER member|FROMLONLAT longitude latitude \
                 BYRADIUS radius M|KM|FT|MI|BYBOX width height M|KM|FT|MI \
                 [ASC|DESC] [COUNT count [ANY]] [STOREDIST]",
                "Stores the places in a circle or a box",
            ),
            |args, _| {
                let mut options = Options { target: Some(blob(args.at(1))), ..Options::default() };
                options.read(args, 3, Allowed::AreasStored)?;
                options.plan(args, 2)
            },
        )
        .with_keys(TWO),
];

fn add(args: Args<'_>, _: &mut Given<'_>) -> Understood {
    let (mut absent, mut present, mut changed) = (false, false, false);
    let mut at = 2;
    loop {
        match args.at(at) {
            option if is(option, "NX") => absent = true,
            option if is(option, "XX") => present = true,
            option if is(option, "CH") => changed = true,
            _ => break,
        }
        at += 1;
    }
    let places = args.len().saturating_sub(at);
    if places == 0 || !places.is_multiple_of(3) || (absent && present) {
        return Err(Complaint::Syntax);
    }
    let condition = match (absent, present) {
        (true, _) => Condition::IfAbsent,
        (_, true) => Condition::IfPresent,
        _ => Condition::Always,
    };
    let members: Result<Vec<_>, Complaint> =
        (at..args.len()).step_by(3).map(|at| Ok((point(args, at)?.score(), blob(args.at(at + 2))))).collect();
    let flags = ZAddFlags { condition, changed, ..ZAddFlags::default() };
    Ok(Operation::ZAdd { key: blob(args.at(1)), flags, members: Scored::from(members?) }.into())
}

fn of_each(args: Args<'_>, places: Places) -> Understood {
    let operation = Operation::ZMScore { key: blob(args.at(1)), members: blobs(args, 2) };
    Ok(Plan { operation, shape: Shape::Places(places) })
}

/// Longitude and latitude, which stand at this place.
fn point(args: Args<'_>, at: usize) -> Result<Point, Complaint> {
    let (longitude, latitude) = (float(args.at(at))?.get(), float(args.at(at + 1))?.get());
    Point::new(longitude, latitude).ok_or_else(|| {
        Complaint::text(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
    })
}

fn center(args: Args<'_>, at: usize) -> Result<Center, Complaint> {
    let Point { longitude, latitude } = point(args, at)?;
    let degrees = |degrees| Score::new(degrees).ok_or(Complaint::NotFloat);
    Ok(Center::Point { longitude: degrees(longitude)?, latitude: degrees(latitude)? })
}

fn unit(text: &[u8]) -> Result<Unit, Complaint> {
    match () {
        () if is(text, "M") => Ok(Unit::Meters),
        () if is(text, "KM") => Ok(Unit::Kilometers),
        () if is(text, "FT") => Ok(Unit::Feet),
        () if is(text, "MI") => Ok(Unit::Miles),
        () => Err(Complaint::text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

fn length(text: &[u8], error: &'static str) -> Result<Score, Complaint> {
    Score::read_meant(text).ok_or(Complaint::text(error))
}

/// A radius and its unit, which stand at this place.
fn circle(args: Args<'_>, at: usize) -> Result<(Area, Unit), Complaint> {
    let radius = length(args.at(at), "ERR need numeric radius")?;
    if radius < Score::ZERO {
        return Err(Complaint::text("ERR radius cannot be negative"));
    }
    Ok((Area::Circle { radius }, unit(args.at(at + 1))?))
}

/// Two sides and their unit, which stand at this place.
fn sides(args: Args<'_>, at: usize) -> Result<(Area, Unit), Complaint> {
    let width = length(args.at(at), "ERR need numeric width")?;
    let height = length(args.at(at + 1), "ERR need numeric height")?;
    if width < Score::ZERO || height < Score::ZERO {
        return Err(Complaint::text("ERR height or width cannot be negative"));
    }
    Ok((Area::Box { width, height }, unit(args.at(at + 2))?))
}

fn around_point(args: Args<'_>, stored: bool) -> Understood {
    let center = Some(center(args, 2)?);
    let options = Options { center, area: Some(circle(args, 4)?), ..Options::default() };
    around(args, 6, options, stored)
}

fn around_member(args: Args<'_>, stored: bool) -> Understood {
    let center = Some(Center::Member(blob(args.at(2))));
    let options = Options { center, area: Some(circle(args, 3)?), ..Options::default() };
    around(args, 5, options, stored)
}

fn around(args: Args<'_>, at: usize, mut options: Options, stored: bool) -> Understood {
    options.read(args, at, if stored { Allowed::Target } else { Allowed::Nothing })?;
    options.plan(args, 1)
}

/// Options of a search.
#[derive(Default)]
struct Options {
    center: Option<Center>,
    area: Option<(Area, Unit)>,
    order: Option<Order>,
    count: Option<u64>,
    any: bool,
    details: Details,
    /// Where it is stored, by distance or by score.
    target: Option<Blob>,
    distances: bool,
}

/// Which options a command of the family has beside those that all have.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Allowed {
    Nothing,
    /// `STORE` and `STOREDIST`, with a key.
    Target,
    /// Where and how far is searched.
    Areas,
    /// The same, and `STOREDIST` without a key.
    AreasStored,
}

impl Options {
    /// The options from this place on.
    fn read(&mut self, args: Args<'_>, mut at: usize, allowed: Allowed) -> Result<(), Complaint> {
        let areas = matches!(allowed, Allowed::Areas | Allowed::AreasStored);
        let (mut from_member, mut from_point, mut by_radius, mut by_box) = (false, false, false, false);
        while at < args.len() {
            let option = args.at(at);
            let left = args.len() - at - 1;
            match () {
                () if is(option, "WITHDIST") => self.details.distance = true,
                () if is(option, "WITHHASH") => self.details.hash = true,
                () if is(option, "WITHCOORD") => self.details.coordinates = true,
                () if is(option, "ANY") => self.any = true,
                () if is(option, "ASC") => self.order = Some(Order::Near),
                () if is(option, "DESC") => self.order = Some(Order::Far),
                () if is(option, "COUNT") && left >= 1 => {
                    let count = u64::try_from(number(args.at(at + 1))?).ok().filter(|count| *count > 0);
                    self.count = Some(count.ok_or(Complaint::text("ERR COUNT must be > 0"))?);
                    at += 1;
                }
                () if allowed == Allowed::Target && left >= 1 && is(option, "STORE") => {
                    (self.target, self.distances) = (Some(blob(args.at(at + 1))), false);
                    at += 1;
                }
                () if allowed == Allowed::Target && left >= 1 && is(option, "STOREDIST") => {
                    (self.target, self.distances) = (Some(blob(args.at(at + 1))), true);
                    at += 1;
                }
                () if allowed == Allowed::AreasStored && is(option, "STOREDIST") => self.distances = true,
                () if areas && left >= 1 && !from_point && is(option, "FROMMEMBER") => {
                    self.center = Some(Center::Member(blob(args.at(at + 1))));
                    from_member = true;
                    at += 1;
                }
                () if areas && left >= 2 && !from_member && is(option, "FROMLONLAT") => {
                    self.center = Some(center(args, at + 1)?);
                    from_point = true;
                    at += 2;
                }
                () if areas && left >= 2 && !by_box && is(option, "BYRADIUS") => {
                    self.area = Some(circle(args, at + 1)?);
                    by_radius = true;
                    at += 2;
                }
                () if areas && left >= 3 && !by_radius && is(option, "BYBOX") => {
                    self.area = Some(sides(args, at + 1)?);
                    by_box = true;
                    at += 3;
                }
                () => return Err(Complaint::Syntax),
            }
            at += 1;
        }
        Ok(())
    }

    /// The search of the key that stands at this place.
    fn plan(self, args: Args<'_>, source: usize) -> Understood {
        let name = String::from_utf8_lossy(args.at(0));
        if self.target.is_some() && self.details.any() {
            let what = if source == 2 { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Complaint::text(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let center = self.center.ok_or_else(|| {
            let one = "exactly one of FROMMEMBER or FROMLONLAT can be specified for";
            Complaint::text(format!("ERR {one} {name}"))
        })?;
        let (area, unit) = self.area.ok_or_else(|| {
            let one = "exactly one of BYRADIUS and BYBOX can be specified for";
            Complaint::text(format!("ERR {one} {name}"))
        })?;
        if self.any && self.count.is_none() {
            return Err(Complaint::text("ERR the ANY argument requires COUNT argument"));
        }
        // Of some, the nearest are meant, unless any will do.
        let unsaid = if self.count.is_some() && !self.any { Order::Near } else { Order::Walked };
        let order = self.order.unwrap_or(unsaid);
        let search = Arc::new(Search { center, area, unit, order, count: self.count, any: self.any });
        let (key, details) = (blob(args.at(source)), self.details);
        if let Some(target) = self.target {
            let distances = self.distances;
            return Ok(Operation::GeoSearchStore { target, source: key, search, distances }.into());
        }
        let shape = if details.any() { Shape::Places(Places::Found(details)) } else { Shape::Plain };
        Ok(Plan { operation: Operation::GeoSearch { key, search, detailed: details.any() }, shape })
    }
}
