//! Points on the earth as Redis keeps and finds them: 52 bits of longitude and latitude, taken by turns, as the score of
//! a member of a sorted set, so that what is near one point has scores in a few ranges.
//!
//! Sine, cosine and arcsine are those of the `libm` crate, so that what is written from a distance is the same on every
//! replica, whatever its processor and its C library. Nearly all distances are those of Redis to the last bit; the
//! others differ in the last of 16 digits, as Redis' own do between machines.

use crate::Blob;
use crate::command::Score;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use std::ops::Range;

/// The furthest from the equator that a point is kept, degrees: where the map of Mercator is a square.
const LATITUDE_MAX: f64 = 85.05112878;
const LONGITUDE_MAX: f64 = 180.0;
/// Bits of each of the two.
const STEPS_MAX: u32 = 26;
/// Radius of the earth, metres.
const EARTH: f64 = 6_372_797.560856;
/// Half of the equator on the map of Mercator, metres.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// A point, degrees.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Point {
    /// From -180 to 180.
    pub longitude: f64,
    /// From -85.05112878 to 85.05112878.
    pub latitude: f64,
}

/// What distances are counted in.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Unit {
    /// Metres.
    Meters,
    /// Kilometres.
    Kilometers,
    /// Feet.
    Feet,
    /// Miles.
    Miles,
}

impl Unit {
    /// How many metres it has.
    pub fn meters(self) -> f64 {
        match self {
            Unit::Meters => 1.0,
            Unit::Kilometers => 1000.0,
            Unit::Feet => 0.3048,
            Unit::Miles => 1609.34,
        }
    }
}

/// Around what is searched.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Center {
    /// A member of the sorted set that is searched.
    Member(Blob),
    /// A point.
    Point {
        /// Degrees.
        longitude: Score,
        /// Degrees.
        latitude: Score,
    },
}

/// How far.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub enum Area {
    /// In a circle of this radius.
    Circle {
        /// In the unit of the search; not negative.
        radius: Score,
    },
    /// In a box whose sides run north and east, the centre in its middle.
    Box {
        /// From west to east, in the unit of the search; not negative.
        width: Score,
        /// From south to north, in the unit of the search; not negative.
        height: Score,
    },
}

/// In which order points are found.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The nearest first.
    Near,
    /// The furthest first.
    Far,
    /// As the walk comes by.
    Walked,
}

/// A search.
#[derive(Clone, Eq, PartialEq, Hash, Debug, Serialize, Deserialize)]
pub struct Search {
    /// Around what.
    pub center: Center,
    /// How far.
    pub area: Area,
    /// What lengths and distances are counted in.
    pub unit: Unit,
    /// The order of what is found; of equals, that of the walk.
    pub order: Order,
    /// At most so many.
    pub count: Option<u64>,
    /// Whether the walk ends once there are as many, whatever else would have been nearer.
    pub any: bool,
}

impl Point {
    /// The point of these degrees, if it can be kept.
    pub fn new(longitude: f64, latitude: f64) -> Option<Point> {
        let within = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        within.then_some(Point { longitude, latitude })
    }

    /// The score of a member that is here.
    pub fn score(self) -> Score {
        Score::new(Cell::of(self, STEPS_MAX, LATITUDE_MAX).bits() as f64).unwrap_or_default()
    }

    /// Where a member of this score is: the middle of what has that score. Every score is somewhere.
    pub fn of_score(score: Score) -> Point {
        let bits = to_bits(score.get());
        let cell = Cell { latitude: gather(bits), longitude: gather(bits >> 1), steps: STEPS_MAX };
        let middle = |range: Range<f64>, most: f64| ((range.start + range.end) / 2.0).clamp(-most, most);
        Point {
            longitude: middle(cell.longitudes(), LONGITUDE_MAX),
            latitude: middle(cell.latitudes(), LATITUDE_MAX),
        }
    }

    /// The geohash that the world outside uses: 11 letters, of which the last is always 0.
    pub fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let bits = Cell::of(self, STEPS_MAX, 90.0).bits();
        // 52 bits are ten letters and a bit of one.
        std::array::from_fn(|at| match at {
            10 => LETTERS[0],
            at => LETTERS[(bits >> (47 - 5 * at)) as usize & 31],
        })
    }

    /// How far another point is, metres, on a sphere.
    pub fn distance(self, other: Point) -> f64 {
        let across = libm::sin((radians(other.longitude) - radians(self.longitude)) / 2.0);
        if across == 0.0 {
            return along(self.latitude, other.latitude);
        }
        let (here, there) = (radians(self.latitude), radians(other.latitude));
        let up = libm::sin((there - here) / 2.0);
        let square = up * up + libm::cos(here) * libm::cos(there) * across * across;
        // What rounding adds to the other side of the earth.
        2.0 * EARTH * libm::asin(square.sqrt().min(1.0))
    }
}

/// The double as 64 bits, as Redis' compiler has it where the score is none of a point: a negative one counts down from
/// the end.
fn to_bits(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    let signed = |value: f64| if (-HALF..HALF).contains(&value) { value as i64 } else { i64::MIN };
    if score < HALF { signed(score) as u64 } else { signed(score - HALF) as u64 ^ (1 << 63) }
}

fn radians(degrees: f64) -> f64 {
    degrees * (PI / 180.0)
}

fn degrees(radians: f64) -> f64 {
    radians / (PI / 180.0)
}

/// How far two latitudes are from each other, metres.
fn along(one: f64, other: f64) -> f64 {
    EARTH * (radians(other) - radians(one)).abs()
}

/// A cell of a grid that divides the map `steps` times in each direction, by its number in each.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
struct Cell {
    latitude: u32,
    longitude: u32,
    steps: u32,
}

impl Cell {
    /// The cell of a point, of a map that reaches so far north.
    fn of(point: Point, steps: u32, north: f64) -> Cell {
        let number =
            |value: f64, most: f64| ((value + most) / (most + most) * f64::from(1u32 << steps)) as u32;
        Cell {
            latitude: number(point.latitude, north),
            longitude: number(point.longitude, LONGITUDE_MAX),
            steps,
        }
    }

    /// Both numbers bit by bit by turns, the longitude's first.
    fn bits(self) -> u64 {
        spread(self.latitude) | spread(self.longitude) << 1
    }

    /// The scores of points in here.
    fn scores(self) -> Range<u64> {
        let shift = 2 * (STEPS_MAX - self.steps);
        self.bits() << shift..(self.bits() + 1) << shift
    }

    /// From where to where it reaches, degrees.
    fn latitudes(self) -> Range<f64> {
        self.side(self.latitude, LATITUDE_MAX)
    }

    fn longitudes(self) -> Range<f64> {
        self.side(self.longitude, LONGITUDE_MAX)
    }

    fn side(self, number: u32, most: f64) -> Range<f64> {
        let at = |number: f64| -most + number / f64::from(1u32 << self.steps) * (most + most);
        at(f64::from(number))..at(f64::from(number) + 1.0)
    }

    /// A cell beside it; the map goes on at its other side.
    fn beside(self, north: i32, east: i32) -> Cell {
        let step = |number: u32, by: i32| match by {
            0 => number,
            by => number.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        Cell { latitude: step(self.latitude, north), longitude: step(self.longitude, east), ..self }
    }
}

/// The bits of a number, a zero in front of each.
fn spread(number: u32) -> u64 {
    [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ]
    .into_iter()
    .fold(u64::from(number), |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// Every second bit, from the lowest on.
fn gather(bits: u64) -> u32 {
    [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ]
    .into_iter()
    .fold(bits & 0x5555_5555_5555_5555, |bits: u64, (shift, mask)| (bits | bits >> shift) & mask) as u32
}

/// An area around a point.
pub struct Reach {
    center: Point,
    area: Sides,
}

/// An area in metres.
enum Sides {
    Circle(f64),
    Box { width: f64, height: f64 },
}

impl Reach {
    /// The area of a search, around this point.
    pub fn new(center: Point, area: Area, unit: Unit) -> Reach {
        let meters = |length: Score| length.get() * unit.meters();
        let area = match area {
            Area::Circle { radius } => Sides::Circle(meters(radius)),
            Area::Box { width, height } => Sides::Box { width: meters(width), height: meters(height) },
        };
        Reach { center, area }
    }

    /// How far from the centre a point is, metres, if it lies within.
    pub fn distance(&self, point: Point) -> Option<f64> {
        match self.area {
            Sides::Circle(radius) => {
                let distance = self.center.distance(point);
                (distance <= radius).then_some(distance)
            }
            Sides::Box { width, height } => {
                let across =
                    |point: Point| point.distance(Point { longitude: self.center.longitude, ..point });
                let within = along(point.latitude, self.center.latitude) <= height / 2.0
                    && across(point) <= width / 2.0;
                within.then(|| self.center.distance(point))
            }
        }
    }

    /// The scores that points within may have, in the order in which Redis looks: the centre's cell and those around it
    /// that reach into the area, nine at most. None twice.
    pub fn scores(&self) -> Vec<Range<u64>> {
        let (latitudes, longitudes) = self.bounds();
        let mut steps = self.steps();
        let mut cell = Cell::of(self.center, steps, LATITUDE_MAX);
        // Cells that are too small for the area, which is wider towards the poles.
        let narrow = cell.beside(1, 0).latitudes().end < latitudes.end
            || cell.beside(-1, 0).latitudes().start > latitudes.start
            || cell.beside(0, 1).longitudes().end < longitudes.end
            || cell.beside(0, -1).longitudes().start > longitudes.start;
        if steps > 1 && narrow {
            steps -= 1;
            cell = Cell::of(self.center, steps, LATITUDE_MAX);
        }
        let (north, south, east, west) = if steps >= 2 {
            let (tall, wide) = (cell.latitudes(), cell.longitudes());
            (
                tall.end <= latitudes.end,
                tall.start >= latitudes.start,
                wide.end <= longitudes.end,
                wide.start >= longitudes.start,
            )
        } else {
            (true, true, true, true)
        };
        let around = [
            (true, 0, 0),
            (north, 1, 0),
            (south, -1, 0),
            (east, 0, 1),
            (west, 0, -1),
            (north && east, 1, 1),
            (north && west, 1, -1),
            (south && east, -1, 1),
            (south && west, -1, -1),
        ];
        let mut found: Vec<Range<u64>> = Vec::with_capacity(around.len());
        for (_, up, right) in around.into_iter().filter(|(reached, ..)| *reached) {
            let scores = cell.beside(up, right).scores();
            // Of two cells in a row each is beside the other twice.
            if !found.contains(&scores) {
                found.push(scores);
            }
        }
        found
    }

    /// A box around the area, degrees.
    fn bounds(&self) -> (Range<f64>, Range<f64>) {
        let (wide, tall) = match self.area {
            Sides::Circle(radius) => (radius, radius),
            Sides::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Point { longitude, latitude } = self.center;
        let up = degrees(tall / EARTH);
        // The side nearer to the pole is the longer one in degrees.
        let side = if latitude < 0.0 { latitude - up } else { latitude + up };
        let right = degrees(wide / EARTH / libm::cos(radians(side)));
        (latitude - up..latitude + up, longitude - right..longitude + right)
    }

    /// How often the map is divided until cells are about as large as the area: 1 to 26.
    fn steps(&self) -> u32 {
        let mut reach = match self.area {
            Sides::Circle(radius) => radius,
            // To a corner.
            Sides::Box { width, height } => {
                (width / 2.0 * (width / 2.0) + height / 2.0 * (height / 2.0)).sqrt()
            }
        };
        if reach == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1;
        // 25 times from a metre on, eleven hundred times from the smallest double.
        while reach < MERCATOR_MAX {
            reach *= 2.0;
            steps += 1;
        }
        steps -= 2;
        // Cells are narrower there.
        steps -= match self.center.latitude.abs() {
            latitude if latitude > 80.0 => 2,
            latitude if latitude > 66.0 => 1,
            _ => 0,
        };
        steps.clamp(1, STEPS_MAX as i32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(longitude: f64, latitude: f64) -> Point {
        Point::new(longitude, latitude).unwrap()
    }

    fn score(value: f64) -> Score {
        Score::new(value).unwrap()
    }

    fn circle(center: Point, radius: f64) -> Reach {
        Reach::new(center, Area::Circle { radius: score(radius) }, Unit::Meters)
    }

    /// What redis-server 7.0.15 says of the same.
    #[test]
    fn scores_are_those_of_redis() {
        for (longitude, latitude, held, geohash) in [
            (13.361389, 38.115556, 3479099956230698.0, "sqc8b49rny0"),
            (15.087269, 37.502669, 3479447370796909.0, "sqdtr74hyu0"),
            (-180.0, -85.05112878, 0.0, "00bh0hbj200"),
            (180.0, 85.05112878, 13510798882111488.0, "bp05b5048p0"),
            (0.0, 0.0, 3377699720527872.0, "s0000000000"),
        ] {
            let score = point(longitude, latitude).score();
            assert_eq!(score.get(), held);
            assert_eq!(Point::of_score(score).geohash(), geohash.as_bytes());
        }
        assert_eq!(Point::new(180.1, 0.0), None);
        assert_eq!(Point::new(0.0, 85.0512), None);
        assert_eq!(Point::new(f64::NAN, 0.0), None);
    }

    /// The same bits everywhere: they are written by commands that every replica executes.
    #[test]
    fn distances_are_the_same_on_every_machine() {
        let palermo = Point::of_score(score(3479099956230698.0));
        let catania = Point::of_score(score(3479447370796909.0));
        assert_eq!(palermo.distance(catania).to_bits(), 166274.15156960032_f64.to_bits());
        assert_eq!(palermo.distance(palermo), 0.0);
        let far = point(-122.4, 37.7).distance(point(57.6, -37.7));
        assert_eq!(far.to_bits(), 20020733.810075995_f64.to_bits());
    }

    #[test]
    fn every_score_is_somewhere() {
        for value in [f64::NEG_INFINITY, -1.0, 0.5, 1e300, f64::INFINITY, -0.5, 9.3e18] {
            let Point { longitude, latitude } = Point::of_score(score(value));
            assert!(Point::new(longitude, latitude).is_some(), "{value}");
        }
    }

    #[test]
    fn any_area_is_searched_in_nine_cells_at_most() {
        for longitude in [-180.0, -90.0, 0.0, 179.9, 180.0] {
            for latitude in [-85.05112878, -67.0, 0.0, 81.0, 85.05112878] {
                for radius in [0.0, 5e-324, 1.0, 1e3, 1e6, 2e7, 1e300, f64::INFINITY] {
                    let scores = circle(point(longitude, latitude), radius).scores();
                    assert!((1..=9).contains(&scores.len()));
                    for (at, one) in scores.iter().enumerate() {
                        assert!(one.start < one.end);
                        let apart = |other: &Range<u64>| one.end <= other.start || other.end <= one.start;
                        assert!(scores[..at].iter().all(apart), "a score is looked at twice: {scores:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn bits_are_spread_and_gathered(number: u32) {
            prop_assert_eq!(gather(spread(number)), number);
            prop_assert_eq!(gather(spread(number) << 1), 0);
        }

        #[test]
        fn a_point_is_where_its_score_says(longitude in -180.0..180.0, latitude in -85.0..85.0) {
            let here = point(longitude, latitude);
            let there = Point::of_score(here.score());
            prop_assert_eq!(there.score(), here.score());
            prop_assert!(here.distance(there) < 0.6, "{:?} {:?}", here, there);
        }

        /// What lies within is in a cell that is looked at.
        #[test]
        fn nothing_within_is_missed(
            longitude in -180.0..180.0,
            latitude in -60.0..60.0,
            reach in 0.0..6.0,
            aside in (-1.0..1.0, -1.0..1.0),
            circular: bool,
        ) {
            let center = point(longitude, latitude);
            // Up to a thousand kilometres.
            let length = 10f64.powf(reach);
            let degrees = length / EARTH / (PI / 180.0);
            let mut beside: f64 = longitude + aside.0 * degrees * 2.0;
            if beside.abs() > 180.0 {
                beside -= 360.0_f64.copysign(beside);
            }
            let other = Point::of_score(point(beside, latitude + aside.1 * degrees).score());
            let (width, height) = (score(length * 2.0), score(length));
            let area = if circular { Area::Circle { radius: height } } else { Area::Box { width, height } };
            let reach = Reach::new(center, area, Unit::Meters);
            if let Some(distance) = reach.distance(other) {
                prop_assert!(distance <= length * 2.0);
                let bits = other.score().get() as u64;
                prop_assert!(reach.scores().iter().any(|scores| scores.contains(&bits)), "{other:?} of {center:?}");
            }
        }
    }
}
