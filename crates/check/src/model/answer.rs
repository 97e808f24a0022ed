//! A model's answer, held against what the client saw.

use crate::history::Value;
use crate::planted::{Mutation, planted};

/// What the model would answer; borrows from the state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer<'s> {
    Nil,
    Ok,
    Integer(i64),
    Text(&'s [u8]),
    /// A floating-point number; the client saw some decimal form of it.
    Float(f64),
    List(Vec<Answer<'s>>),
    /// The code of an error.
    Error(&'static str),
}

impl Answer<'_> {
    /// Whether the client may have seen this answer as `observed`; what was not recorded fits.
    pub(super) fn fits(&self, observed: Option<&Value>) -> bool {
        match observed {
            Some(observed) => self.equals(observed),
            None => !planted(Mutation::UnrecordedIsNil) || *self == Answer::Nil,
        }
    }

    fn equals(&self, observed: &Value) -> bool {
        match (self, observed) {
            (Answer::Nil, Value::Nil) => true,
            (Answer::Ok, Value::Text(text)) => text == "OK",
            (Answer::Integer(number), Value::Integer(seen)) => number == seen,
            // Programs differ in whether they show a numeric answer as a number or as a string.
            (Answer::Integer(number), Value::Text(text)) => canonical(text) == Some(*number),
            (Answer::Text(text), Value::Text(seen)) => *text == seen.as_bytes(),
            (Answer::Text(text), Value::Integer(seen)) => {
                std::str::from_utf8(text).ok().and_then(canonical) == Some(*seen)
            }
            (Answer::Float(number), Value::Text(seen)) => {
                seen.parse::<f64>().is_ok_and(|seen| seen == *number)
            }
            (Answer::Float(number), Value::Integer(seen)) => *number == *seen as f64,
            (Answer::List(answers), Value::List(seen)) => {
                answers.len() == seen.len()
                    && answers.iter().zip(seen).all(|(answer, seen)| answer.equals(seen))
            }
            (Answer::Error(code), Value::Error(seen)) => seen.split_whitespace().next() == Some(code),
            _ => false,
        }
    }
}

/// The integer that `text` is, if it is written as integers are: no plus sign, no leading zeros, no spaces.
pub(super) fn canonical(text: &str) -> Option<i64> {
    let number = text.parse::<i64>().ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = !text.starts_with('+') && (digits == "0" || !digits.starts_with('0')) && text != "-0";
    plain.then_some(number)
}
