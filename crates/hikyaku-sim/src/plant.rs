//! Faults of ours that are put in on purpose, to see whether the comparison finds them.

use hikyaku_core::delivery::{DeliveryState, FailureKind, Outcome};

use crate::ledger::{Delivery, Ledgers, Line};

/// A fault to put in, once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A publish is answered and never made.
    PublishForgotten,
    /// A request goes out twice under one attempt.
    SentTwice,
    /// A request is under way twice at the same time.
    SentBeside,
    /// A byte of a body is another one on the wire.
    ByteChanged,
    /// A signature is another one on the wire.
    SignatureChanged,
    /// A request about an event that nobody published.
    Phantom,
    /// The program takes a failure for a success.
    FailureTakenForSuccess,
    /// A delivery of an event is nowhere.
    DeliveryForgotten,
    /// A webhook that was not to get an event has a delivery of it.
    DeliveryTooMuch,
    /// The answer to a publish names another number of webhooks.
    CountWrong,
    /// A line is not in the log.
    AttemptUnlogged,
    /// A line of the log is about no request.
    AttemptInvented,
    /// A run has a fifth attempt.
    FifthAttempt,
    /// A retry comes early.
    RetryEarly,
    /// A delivery never ends.
    NeverEnds,
    /// A delivery is given up before its attempts are used up.
    GivenUpEarly,
    /// A delivery is cancelled without a reason.
    CancelledForNothing,
    /// A delivery to us is answered 200 and not stored.
    ReceiptForgotten,
    /// It is stored with other bytes.
    ReceiptChanged,
    /// An effect is said to be made, and is not.
    EffectForgotten,
    /// An effect that is made once is made twice.
    EffectTwice,
    /// A call goes out twice, and nothing says why.
    CallTwice,
    /// Something older takes effect after something newer.
    EffectOutOfOrder,
    /// An effect of an event that never came.
    EffectInvented,
    /// A row of the inbox never ends.
    RowNeverEnds,
    /// Whatever is read of the provider's list has not a sale that nothing else brings.
    ListForgets,
    /// A sale that was missing is said to be let in, and is not.
    RepairForgotten,
    /// A sale that the list has not is let in.
    RepairInvented,
    /// What was let in takes effect twice.
    RepairTwice,
    /// The provider's list does not answer any more.
    ListSilent,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::PublishForgotten,
        Self::SentTwice,
        Self::SentBeside,
        Self::ByteChanged,
        Self::SignatureChanged,
        Self::Phantom,
        Self::FailureTakenForSuccess,
        Self::DeliveryForgotten,
        Self::DeliveryTooMuch,
        Self::CountWrong,
        Self::AttemptUnlogged,
        Self::AttemptInvented,
        Self::FifthAttempt,
        Self::RetryEarly,
        Self::NeverEnds,
        Self::GivenUpEarly,
        Self::CancelledForNothing,
        Self::ReceiptForgotten,
        Self::ReceiptChanged,
        Self::EffectForgotten,
        Self::EffectTwice,
        Self::CallTwice,
        Self::EffectOutOfOrder,
        Self::EffectInvented,
        Self::RowNeverEnds,
        Self::ListForgets,
        Self::RepairForgotten,
        Self::RepairInvented,
        Self::RepairTwice,
        Self::ListSilent,
    ];
}

/// Puts in those faults that are about what the program says at the end.
pub(crate) fn tamper(mut ledgers: Ledgers, plant: Option<Plant>) -> Ledgers {
    let Some(plant) = plant else { return ledgers };
    if plant == Plant::DeliveryForgotten {
        let place = ledgers.deliveries.iter().position(|delivery| delivery.log.is_empty() || delivery.run == 1);
        place.map(|place| ledgers.deliveries.remove(place));
    }
    if let (Plant::RowNeverEnds, Some(row)) = (plant, ledgers.rows.values_mut().next()) {
        row.effects.values_mut().for_each(|effect| effect.0 = "waiting".to_owned());
    }
    let delivered = |delivery: &&mut Delivery| delivery.state == DeliveryState::Delivered && delivery.run == 1;
    let wants: fn(&Delivery) -> bool = match plant {
        Plant::RetryEarly => |delivery| delivery.log.len() > 1 && delivery.log.iter().all(was_sent),
        _ => |_| true,
    };
    let Some(delivery) = ledgers.deliveries.iter_mut().filter(delivered).find(|delivery| wants(delivery)) else {
        return ledgers;
    };
    let last = delivery.log.last().cloned();
    match (plant, last) {
        (Plant::DeliveryTooMuch, _) => {
            let webhook = format!("{}-of-nobody", delivery.webhook);
            let more = Delivery { webhook, ..delivery.clone() };
            ledgers.deliveries.push(more);
        }
        (Plant::AttemptUnlogged, _) => delivery.log.clear(),
        (Plant::AttemptInvented, Some(last)) => delivery.log.push(Line { number: last.number + 1, ..last }),
        (Plant::FifthAttempt, Some(last)) => {
            let outcome = Outcome::Failed(FailureKind::Interrupted);
            delivery.log.push(Line { number: 5, outcome, ..last });
        }
        (Plant::RetryEarly, Some(last)) => {
            let (event, webhook) = (delivery.event.clone(), delivery.webhook.clone());
            let of_it = ledgers.wire.iter_mut().filter(|one| one.event == event && one.webhook == webhook);
            of_it.filter(|one| one.wall == last.started_at).for_each(|one| one.at -= 2000);
        }
        (Plant::NeverEnds, _) => delivery.state = DeliveryState::Waiting,
        (Plant::GivenUpEarly, _) => delivery.state = DeliveryState::Exhausted,
        (Plant::CancelledForNothing, _) => {
            delivery.state = DeliveryState::Cancelled;
            ledgers.people.deleted.remove(&delivery.webhook);
        }
        _ => {}
    }
    ledgers
}

fn was_sent(line: &Line) -> bool {
    matches!(line.outcome, Outcome::Answered(_))
}
