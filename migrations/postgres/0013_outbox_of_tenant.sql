-- Whether anything of a tenant waits for the index is looked up before each plan.
CREATE INDEX outbox_of_tenant ON outbox (tenant);
