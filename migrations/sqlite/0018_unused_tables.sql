-- Tables of features that are not built. Each comes back with its feature.
DROP TABLE lore;
DROP TABLE directives;
DROP TABLE erasures;
DROP TABLE fact_links;
DROP TABLE narrative_memory;
DROP TABLE curation_findings;
