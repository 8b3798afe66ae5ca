BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE checkpoints (
	sequence BIGINT NOT NULL, 
	arrays BLOB NOT NULL, 
	shell TEXT NOT NULL, 
	PRIMARY KEY (sequence)
);
CREATE TABLE events (
	sequence BIGINT NOT NULL, 
	time_s FLOAT NOT NULL, 
	event TEXT NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "events" VALUES(1,0.0,'{"event": "restart", "policy": "GreedyPM*/per/OPT=MIN/MVT=600", "version": "0.1.0", "generation": "9dd12c56"}','');
INSERT INTO "events" VALUES(2,0.0,'{"event": "join", "cpu": 1.0, "memory": 1.0, "island": 0, "pause_frees_memory": true, "open": true}','941e0c502c87478811f1b6a130227018');
INSERT INTO "events" VALUES(3,0.0,'{"event": "join", "cpu": 1.0, "memory": 1.0, "island": 0, "pause_frees_memory": true, "open": true}','941e0c502c87478811f1b6a130227018');
INSERT INTO "events" VALUES(4,0.0,'{"event": "submit", "job_id": 1, "tasks": 1, "need": 0.25, "memory": 0.03125, "estimate_s": "nan", "weight": 1.0, "user": 3877663347, "requested_start_s": "nan", "minimum": 0.0, "restartable": false, "last": true}','b9d47c86006596bf5ec1dc5b4a1b2d26');
INSERT INTO "events" VALUES(5,0.0,'{"event": "submit", "job_id": 2, "tasks": 1, "need": 0.25, "memory": 0.03125, "estimate_s": "nan", "weight": 1.0, "user": 3877663347, "requested_start_s": "nan", "minimum": 0.0, "restartable": false, "last": true}','1e056d6c3704278aaf5fb24854c5171d');
INSERT INTO "events" VALUES(6,0.0,'{"event": "complete", "job_id": 1, "last": true}','2f3eb7e0ea33ea2f6354e481c489eb4b');
INSERT INTO "events" VALUES(7,0.0,'{"event": "complete", "job_id": 2, "last": true}','941e0c502c87478811f1b6a130227018');
INSERT INTO "events" VALUES(8,0.0,'{"event": "submit", "job_id": 3, "tasks": 2, "need": 0.5, "memory": 0.03125, "estimate_s": "nan", "weight": 1.0, "user": 3877663347, "requested_start_s": "nan", "minimum": 0.0, "restartable": false, "last": true}','dce98f716ba64f55fe9909fceed8772f');
INSERT INTO "events" VALUES(9,0.0,'{"event": "ready", "serials": [2], "ready_s": [0.0]}','');
CREATE TABLE "happenings" (
	sequence BIGINT NOT NULL, 
	job BIGINT, 
	body TEXT NOT NULL, 
	PRIMARY KEY (sequence)
);
INSERT INTO "happenings" VALUES(1,NULL,'{"time":1800000000.0,"job":null,"node":"n1","action":"join","nodes":[],"yield_":null,"why":"","by":""}');
INSERT INTO "happenings" VALUES(2,NULL,'{"time":1800000000.0,"job":null,"node":"n2","action":"join","nodes":[],"yield_":null,"why":"","by":""}');
INSERT INTO "happenings" VALUES(3,1,'{"time":1800000000.0,"job":1,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"ann"}');
INSERT INTO "happenings" VALUES(4,2,'{"time":1800000000.0,"job":2,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"ann"}');
INSERT INTO "happenings" VALUES(5,1,'{"time":1800000000.0,"job":1,"node":null,"action":"start","nodes":["n1"],"yield_":1.0,"why":"there was room at submission","by":""}');
INSERT INTO "happenings" VALUES(6,2,'{"time":1800000000.0,"job":2,"node":null,"action":"start","nodes":["n2"],"yield_":1.0,"why":"there was room at submission","by":""}');
INSERT INTO "happenings" VALUES(7,1,'{"time":1800000000.0,"job":1,"node":null,"action":"finish","nodes":["n1"],"yield_":null,"why":"done","by":""}');
INSERT INTO "happenings" VALUES(8,2,'{"time":1800000000.0,"job":2,"node":null,"action":"fail","nodes":["n2"],"yield_":null,"why":"ended with status 3; bad luck","by":""}');
INSERT INTO "happenings" VALUES(9,3,'{"time":1800000000.0,"job":3,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"ann"}');
INSERT INTO "happenings" VALUES(10,3,'{"time":1800000000.0,"job":3,"node":null,"action":"start","nodes":["n1","n2"],"yield_":1.0,"why":"there was room at submission","by":""}');
INSERT INTO "happenings" VALUES(11,4,'{"time":1800000000.0,"job":4,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"ann"}');
INSERT INTO "happenings" VALUES(12,5,'{"time":1800000000.0,"job":5,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"ann"}');
INSERT INTO "happenings" VALUES(13,6,'{"time":1800000000.0,"job":6,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"bob"}');
INSERT INTO "happenings" VALUES(14,7,'{"time":1800000000.0,"job":7,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"bob"}');
INSERT INTO "happenings" VALUES(15,8,'{"time":1800000000.0,"job":8,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"bob"}');
INSERT INTO "happenings" VALUES(16,9,'{"time":1800000000.0,"job":9,"node":null,"action":"submit","nodes":[],"yield_":null,"why":"","by":"ann"}');
INSERT INTO "happenings" VALUES(17,9,'{"time":1800000000.0,"job":9,"node":null,"action":"cancel","nodes":[],"yield_":null,"why":"cancelled by ann","by":"ann"}');
INSERT INTO "happenings" VALUES(18,NULL,'{"time":1800000010.0,"job":null,"node":null,"action":"token","nodes":[],"yield_":null,"why":"token 1 for ann, role user","by":"root"}');
INSERT INTO "happenings" VALUES(19,NULL,'{"time":1800000010.0,"job":null,"node":"n2","action":"drain","nodes":[],"yield_":null,"why":"","by":"root"}');
CREATE TABLE jobs (
	id BIGINT NOT NULL, 
	request BIGINT NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	array_index INTEGER, 
	submitted_at FLOAT NOT NULL, 
	told BOOLEAN NOT NULL, 
	held BOOLEAN NOT NULL, 
	started_at FLOAT, 
	outcome TEXT, 
	ended_at FLOAT, 
	state VARCHAR(16) NOT NULL, 
	final TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "jobs" VALUES(1,1,'ann',NULL,1800000000.0,1,0,NULL,'{"state": "done", "exit": "done", "code": 0, "by": ""}',1800000000.0,'done','{"id": 1, "name": "ended", "user": "ann", "state": "done", "why": "done", "command": ["fail", "0"], "tasks": 1, "cpu_cores": null, "need_cores": 1.0, "need_error_cores": null, "memory_bytes": 268435456, "minimum_yield": 0.0, "yield_granted": null, "yield_received": null, "yield_received_error": null, "apart": "", "used_cores": null, "used_bytes": null, "cpu_s": 0.0, "nodes": ["n1"], "submitted_at": 1800000000.0, "started_at": null, "ended_at": 1800000000.0, "start_at": null, "virtual_s": 0.0, "virtual_granted_s": 0.0, "stretch": 1.0, "estimate_s": null, "after": [], "array_index": null, "generation": "9dd12c56", "pauses": 0, "migrations": 0, "exit": "done", "exit_code": 0, "profile": false, "incarnation": 0}');
INSERT INTO "jobs" VALUES(2,2,'ann',NULL,1800000000.0,1,0,NULL,'{"state": "failed", "exit": "ended with status 3; bad luck", "code": 3, "by": ""}',1800000000.0,'failed','{"id": 2, "name": "failed", "user": "ann", "state": "failed", "why": "ended with status 3; bad luck", "command": ["fail", "3", "bad luck"], "tasks": 1, "cpu_cores": null, "need_cores": 1.0, "need_error_cores": null, "memory_bytes": 268435456, "minimum_yield": 0.0, "yield_granted": null, "yield_received": null, "yield_received_error": null, "apart": "", "used_cores": null, "used_bytes": null, "cpu_s": 0.0, "nodes": ["n2"], "submitted_at": 1800000000.0, "started_at": null, "ended_at": 1800000000.0, "start_at": null, "virtual_s": 0.0, "virtual_granted_s": 0.0, "stretch": 1.0, "estimate_s": null, "after": [], "array_index": null, "generation": "9dd12c56", "pauses": 0, "migrations": 0, "exit": "ended with status 3; bad luck", "exit_code": 3, "profile": false, "incarnation": 0}');
INSERT INTO "jobs" VALUES(3,3,'ann',NULL,1800000000.0,1,0,1800000000.0,NULL,NULL,'open',NULL);
INSERT INTO "jobs" VALUES(4,4,'ann',NULL,1800000000.0,0,1,NULL,NULL,NULL,'open',NULL);
INSERT INTO "jobs" VALUES(5,5,'ann',NULL,1800000000.0,0,0,NULL,NULL,NULL,'open',NULL);
INSERT INTO "jobs" VALUES(6,6,'bob',0,1800000000.0,0,1,NULL,NULL,NULL,'open',NULL);
INSERT INTO "jobs" VALUES(7,6,'bob',1,1800000000.0,0,1,NULL,NULL,NULL,'open',NULL);
INSERT INTO "jobs" VALUES(8,6,'bob',2,1800000000.0,0,1,NULL,NULL,NULL,'open',NULL);
INSERT INTO "jobs" VALUES(9,9,'ann',NULL,1800000000.0,0,1,NULL,'{"state": "cancelled", "exit": "cancelled by ann", "code": null, "by": "ann"}',1800000000.0,'cancelled','{"id": 9, "name": "cancelled", "user": "ann", "state": "cancelled", "why": "cancelled by ann", "command": ["forever"], "tasks": 1, "cpu_cores": null, "need_cores": 1.0, "need_error_cores": null, "memory_bytes": 268435456, "minimum_yield": 0.0, "yield_granted": null, "yield_received": null, "yield_received_error": null, "apart": "", "used_cores": null, "used_bytes": null, "cpu_s": 0.0, "nodes": [], "submitted_at": 1800000000.0, "started_at": null, "ended_at": 1800000000.0, "start_at": null, "virtual_s": 0.0, "virtual_granted_s": 0.0, "stretch": 1.0, "estimate_s": null, "after": [], "array_index": null, "generation": "", "pauses": 0, "migrations": 0, "exit": "cancelled by ann", "exit_code": null, "profile": false, "incarnation": 0}');
CREATE TABLE meta (
	"key" VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('writer','729db6004bdb8e89:23');
INSERT INTO "meta" VALUES('version','0.1.0');
INSERT INTO "meta" VALUES('epoch','1800000000.0');
INSERT INTO "meta" VALUES('reference_cores','4.0');
INSERT INTO "meta" VALUES('reference_bytes','8589934592');
CREATE TABLE nodes (
	number INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	island INTEGER NOT NULL, 
	condition VARCHAR(8) NOT NULL, 
	drained BOOLEAN NOT NULL, 
	hello TEXT NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "nodes" VALUES(0,'n1',0,'up',0,'{"kind":"hello","protocol":2,"node":"n1","host":"h","boot":"boot 1","address":"n1.test","cpus":4.0,"memory_bytes":8589934592,"abilities":{"shares":"cgroup-v1","caps":true,"memory_limits":true,"pause_frees_memory":true,"moves_on_host":true,"measures_waiting":false,"images":null,"notes":[]},"transfers":null,"tasks":[],"problem":"","told":0,"version":"test"}');
INSERT INTO "nodes" VALUES(1,'n2',0,'up',1,'{"kind":"hello","protocol":2,"node":"n2","host":"h","boot":"boot 1","address":"n2.test","cpus":4.0,"memory_bytes":8589934592,"abilities":{"shares":"cgroup-v1","caps":true,"memory_limits":true,"pause_frees_memory":true,"moves_on_host":true,"measures_waiting":false,"images":null,"notes":[]},"transfers":null,"tasks":[],"problem":"","told":0,"version":"test"}');
CREATE TABLE points (
	time FLOAT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (time)
);
INSERT INTO "points" VALUES(1800000000.0,'{"time":1800000000.0,"minimum_yield":null,"median_yield":null,"jain":null,"bound":null,"running":0,"waiting":0,"used_cores":0.0}');
CREATE TABLE requests (
	id BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "requests" VALUES(1,'{"command":["fail","0"],"name":"ended"}');
INSERT INTO "requests" VALUES(2,'{"command":["fail","3","bad luck"],"name":"failed"}');
INSERT INTO "requests" VALUES(3,'{"command":["forever"],"name":"running","tasks":2,"cpu_cores":2.0}');
INSERT INTO "requests" VALUES(4,'{"command":["forever"],"name":"held","after":[1],"held":true}');
INSERT INTO "requests" VALUES(5,'{"command":["forever"],"name":"pending","after":[3]}');
INSERT INTO "requests" VALUES(6,'{"command":["forever"],"name":"array","array":3,"held":true}');
INSERT INTO "requests" VALUES(9,'{"command":["forever"],"name":"cancelled","held":true}');
CREATE TABLE tokens (
	id INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	role VARCHAR(8) NOT NULL, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	revoked BOOLEAN NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (hash)
);
INSERT INTO "tokens" VALUES(1,'883b6e854af0e75899d24d8820d27deefb6644d56221523f4ea5f9d4a57742e8','ann','user',1800000010.0,4000000000.0,0);
CREATE INDEX ix_jobs_owner ON jobs (owner);
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE INDEX ix_jobs_ended_at ON jobs (ended_at);
CREATE INDEX ix_happenings_job ON happenings (job);
COMMIT;
