//! Ids as values of SQL statements: bound as text.

use sqlx::{Database, Encode, Type, encode::IsNull, error::BoxDynError};

use crate::ids::{
    ActionId, AttemptId, DialogueId, DirectiveId, EditId, FactId, FindingId, InsightId, InvalidationId, JobId, LoreId,
    MessageId, NodeId, NpcId, PassId, PlayerId, RewindId, SaveId, ScenarioId, SummaryId, TenantId, TurnId, WebhookId,
    WorldId,
};

macro_rules! bind_as_text {
    ($($id:ty),+ $(,)?) => {$(
        impl<Db: Database> Type<Db> for $id
        where
            str: Type<Db>,
        {
            fn type_info() -> <Db as Database>::TypeInfo {
                <str as Type<Db>>::type_info()
            }
        }
        impl<'q, Db: Database> Encode<'q, Db> for $id
        where
            String: Encode<'q, Db>,
        {
            fn encode_by_ref(&self, buffer: &mut <Db as Database>::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                Encode::<Db>::encode(self.to_string(), buffer)
            }
        }
    )+};
}

bind_as_text!(
    DialogueId,
    DirectiveId,
    ActionId,
    EditId,
    FactId,
    InvalidationId,
    JobId,
    LoreId,
    NodeId,
    NpcId,
    PlayerId,
    RewindId,
    SaveId,
    FindingId,
    PassId,
    InsightId,
    ScenarioId,
    SummaryId,
    TenantId,
    TurnId,
    WorldId,
    WebhookId,
    MessageId,
    AttemptId,
);
