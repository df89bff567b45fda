-- What a tenant may use, where that is not what the server allows every tenant: JSON.
ALTER TABLE tenants ADD COLUMN budget TEXT;
-- The few that every node looks for.
CREATE INDEX tenants_with_budget ON tenants (id) WHERE budget IS NOT NULL;
-- What all tenants used of a day.
CREATE INDEX model_usage_of_day ON model_usage (day);
-- Whether anything is left of a dialogue in which nothing stands.
CREATE INDEX turns_unsaid_of_dialogue ON turns (tenant, dialogue) WHERE stands = FALSE;
