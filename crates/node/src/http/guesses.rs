//! Wrong tokens, counted. After some in a row each answer comes late, also that to a right one: if it came at once, no answer
//! would say as soon that a token is wrong. Whoever shows a right one is believed to be no guesser.

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Wrong tokens in a row after which answers are late.
const FREE: u32 = 5;
/// How late.
const DELAY: Duration = Duration::from_secs(1);

/// Of all who may show a token: they are on this machine, so there is no telling them apart.
#[derive(Debug, Default)]
pub(super) struct Guesses(AtomicU32);

/// Carries out an order, and answers late where it is to.
pub(super) async fn late(Shared(guesses): Shared<Arc<Guesses>>, request: Request, next: Next) -> Response {
    let late = guesses.0.load(Relaxed) >= FREE;
    let response = next.run(request).await;
    // At once: who does not wait for the answer has guessed as well.
    match response.status() {
        StatusCode::UNAUTHORIZED => {
            guesses.0.fetch_add(1, Relaxed);
        }
        // Nothing else is answered before the token was looked at.
        status if status.is_success() || status == StatusCode::CONFLICT => guesses.0.store(0, Relaxed),
        _ => {}
    }
    if late {
        tokio::time::sleep(DELAY).await;
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tonic::codegen::Service as _;

    #[test]
    fn a_right_token_waits_like_a_wrong_one_where_many_were_wrong() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut router: Router = Router::new()
                .route("/right", get(async || "done\n"))
                .route("/wrong", get(async || StatusCode::UNAUTHORIZED))
                .route("/unread", get(async || StatusCode::BAD_REQUEST))
                .route_layer(from_fn_with_state(Arc::new(Guesses::default()), late));
            // What waits for nothing is answered before the time is looked at.
            let mut at_once = async |place: &str| {
                let answer = router.call(Request::get(place).body(Body::empty()).unwrap());
                tokio::time::timeout(Duration::ZERO, answer).await.is_ok()
            };
            for round in 0..2 {
                for guess in 0..FREE {
                    assert!(at_once("/wrong").await, "{round} {guess}");
                }
                for place in ["/wrong", "/unread", "/right"] {
                    assert!(!at_once(place).await, "{round} {place}");
                }
                assert!(at_once("/right").await, "{round}");
            }
        });
    }
}
