//! The steps of a celery chord, made of other operations. Whatever may be refused is looked at before anything is
//! changed.

use crate::number;
use crate::turn::{Turn, fits};
use isochrone_core::command::{
    Chord, Condition, Expiry, ExpiryCondition, Operation, Refusal, Response, Side,
};
use isochrone_core::{Blob, Stamp};

impl Turn<'_> {
    pub(crate) fn chord(&mut self, chord: &Chord) -> Result<Response, Refusal> {
        match chord {
            Chord::Part { .. } => self.chord_part(chord),
            Chord::Extend { claim, size, token, until } => {
                let held = self.ask(Operation::Get { key: claim.clone() })?;
                let taken = if held == Response::Bulk(token.clone()) {
                    self.expire_key(claim, *until)
                } else if held == Response::Nil
                    && self.store().exists(std::slice::from_ref(size)) == Response::Integer(1)
                {
                    self.claim(claim, token, *until)? == Response::Ok
                } else {
                    false
                };
                Ok(Response::yes(taken))
            }
            Chord::Finish { claim, keys, token, done_until } => {
                if self.ask(Operation::Get { key: claim.clone() })? != Response::Bulk(token.clone()) {
                    return Ok(Response::Integer(0));
                }
                self.run_inner(&Operation::Del { keys: keys.clone().into() });
                if let Some(until) = done_until {
                    let (key, value) = (claim.clone(), Blob::from("done"));
                    let (condition, expiry) = (Condition::Always, Expiry::At(*until));
                    self.ask(Operation::Set { key, value, condition, expiry, get: false })?;
                }
                Ok(Response::Integer(1))
            }
        }
    }

    fn chord_part(&mut self, chord: &Chord) -> Result<Response, Refusal> {
        let Chord::Part { results, difference, size, recorded, claim, member, value, score, .. } = chord
        else {
            return Ok(Response::Nil);
        };
        let Chord::Part { group, expires, group_expires, claimed_until, token, .. } = chord else {
            return Ok(Response::Nil);
        };
        let get = |key: &Blob| Operation::Get { key: key.clone() };
        let count = match score {
            Some(_) => Operation::ZCard { key: results.clone() },
            None => Operation::LLen { key: results.clone() },
        };
        if self.ask(get(claim))? == Response::bulk(b"done") {
            let zero = Response::Integer(0);
            return Ok(Response::Array(vec![Response::Integer(-1), zero.clone(), zero.clone(), zero]));
        }
        let (key, wanted) = (recorded.clone(), member.clone());
        let known = self.ask(Operation::SIsMember { key, member: wanted })?;
        self.ask(count.clone())?;
        let (difference_held, size_held) = (self.ask(get(difference))?, self.ask(get(size))?);
        let length = |held: &Response| if let Response::Bulk(text) = held { text.len() } else { 0 };
        fits(self.left(), [length(&difference_held), length(&size_held)].into_iter())?;
        // Nothing below is refused.
        if known == Response::Integer(0) {
            let key = results.clone();
            self.run_inner(&match score {
                Some(score) => {
                    let members = [(*score, value.clone())].into();
                    Operation::ZAdd { key, flags: Default::default(), members }
                }
                None => {
                    let values = [value.clone()].into();
                    Operation::Push { key, values, side: Side::Right, only_if_exists: false }
                }
            });
            self.run_inner(&Operation::SAdd { key: recorded.clone(), members: [member.clone()].into() });
        }
        let ready = self.ask(count)?;
        if let Some(at) = expires {
            for key in [results, difference, size, recorded] {
                self.expire_key(key, *at);
            }
            group_expires.map(|at| self.expire_key(group, at));
        }
        let number = |response: &Response| match response {
            Response::Bulk(text) => number::integer(text),
            _ => None,
        };
        let total = number(&size_held).map(|size| size.saturating_add(number(&difference_held).unwrap_or(0)));
        let complete = total.is_some_and(|total| ready == Response::Integer(total));
        let claimed = complete && self.claim(claim, token, *claimed_until)? == Response::Ok;
        Ok(Response::Array(vec![ready, difference_held, size_held, Response::yes(claimed)]))
    }

    /// Executes an operation that is a part of this one.
    fn ask(&mut self, operation: Operation) -> Result<Response, Refusal> {
        match self.run_inner(&operation) {
            Response::Error(refusal) => Err(refusal),
            response => Ok(response),
        }
    }

    fn claim(&mut self, claim: &Blob, token: &Blob, until: Stamp) -> Result<Response, Refusal> {
        let (key, value) = (claim.clone(), token.clone());
        let (condition, expiry) = (Condition::IfAbsent, Expiry::At(until));
        self.ask(Operation::Set { key, value, condition, expiry, get: false })
    }

    fn expire_key(&mut self, key: &Blob, at: Stamp) -> bool {
        let (key, condition) = (key.clone(), ExpiryCondition::Always);
        self.run_inner(&Operation::ExpireAt { key, at, condition }) == Response::Integer(1)
    }
}
