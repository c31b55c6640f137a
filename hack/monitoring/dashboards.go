package main

import "strings"

// dashboard is one of Grafana, as a file of its provisioning has it.
type dashboard struct {
	UID           string         `json:"uid"`
	Title         string         `json:"title"`
	Tags          []string       `json:"tags"`
	SchemaVersion int            `json:"schemaVersion"`
	Refresh       string         `json:"refresh"`
	Time          map[string]any `json:"time"`
	Templating    map[string]any `json:"templating"`
	Panels        []panel        `json:"panels"`
}

type panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Datasource  map[string]any `json:"datasource"`
	GridPos     map[string]int `json:"gridPos"`
	Targets     []target       `json:"targets"`
	FieldConfig map[string]any `json:"fieldConfig"`
}

type target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
}

// graph is what tells a panel from others.
type graph struct{ title, unit, legend, expr string }

// dashboards are those that are shipped, by the names of their files.
func dashboards() map[string]dashboard {
	const job, member = `job=~"$job"`, `job=~"$job",cluster=~"$cluster"`
	return map[string]dashboard{
		"fleet": build("Fleet", []string{"job"}, []graph{
			// A standby says of each member what the leader says, and replicas that share members say of others' that they are not theirs.
			{"Members by state", "short", "{{state}}", `count by (state) (max by (namespace, job, cluster, state) (fleet_runtime_member_state{` + job + `,state!="NotOwned"}) == 1)`},
			{"Ready, of those that this fleet works on", "percentunit", "", `sum(fleet_runtime_members{` + job + `,state="Ready"}) / sum(fleet_runtime_members{` + job + `,state!="NotOwned"})`},
			{"Members by reason", "short", "{{reason}}", `count by (reason) (max by (cluster, reason) (fleet_runtime_member_reason{` + job + `}))`},
			{"Kinds that are not synced, in how many members", "short", "{{kind}}", `count by (kind) (max by (cluster, kind) (fleet_runtime_member_not_synced{` + job + `}))`},
			{"Problems of discovery", "short", "{{provider}}: {{reason}}", `max by (provider, reason) (fleet_runtime_discovery_problems{` + job + `})`},
			{"Members that leave", "short", "{{cluster}}", `max by (cluster) (fleet_runtime_member_leaving{` + job + `})`},
			{"Credentials that expire first", "s", "{{cluster}}", `bottomk(10, min by (cluster) (fleet_runtime_member_credentials_expiry_timestamp_seconds{` + job + `}) - time())`},
			{"Reconciles that fail", "ops", "{{controller}}", `sum by (controller) (rate(fleet_runtime_member_reconciles_total{` + job + `,result="error"}[$__rate_interval]))`},
		}),
		"member": build("Fleet: a member", []string{"job", "cluster"}, []graph{
			{"State", "short", "{{cluster}}: {{state}}", `max by (cluster, state) (fleet_runtime_member_state{` + member + `}) == 1`},
			{"Since the last transition", "s", "{{cluster}}", `time() - max by (cluster) (fleet_runtime_member_last_transition_timestamp_seconds{` + member + `})`},
			{"From reported to Ready", "s", "{{cluster}}", `max by (cluster) (fleet_runtime_member_time_to_ready_seconds{` + member + `})`},
			{"Engagements and rotations", "short", "{{cluster}}", `sum by (cluster) (increase(fleet_runtime_member_engagements_total{` + member + `}[$__rate_interval]) + increase(fleet_runtime_member_rotations_total{` + member + `}[$__rate_interval]))`},
			{"The last probe", "s", "{{cluster}}", `max by (cluster) (fleet_runtime_member_last_probe_seconds{` + member + `})`},
			{"Probes, on average", "s", "{{cluster}}", `sum by (cluster) (rate(fleet_runtime_member_probe_seconds_sum{` + member + `}[$__rate_interval])) / sum by (cluster) (rate(fleet_runtime_member_probe_seconds_count{` + member + `}[$__rate_interval]))`},
			{"Reconciles by result", "ops", "{{controller}}: {{result}}", `sum by (controller, result) (rate(fleet_runtime_member_reconciles_total{` + member + `}[$__rate_interval]))`},
			{"Wait in the queue, on average", "s", "{{controller}}", `sum by (controller) (rate(fleet_runtime_queue_wait_seconds_sum{` + member + `}[$__rate_interval])) / sum by (controller) (rate(fleet_runtime_queue_wait_seconds_count{` + member + `}[$__rate_interval]))`},
		}),
		"controller": build("Fleet: controllers", []string{"job"}, []graph{
			{"Workers, and reconciles that count", "short", "{{controller}}", `sum by (controller) (fleet_runtime_queue_counting{` + job + `}) / (sum by (controller) (fleet_runtime_queue_workers{` + job + `}) > 0)`},
			{"Reconciles that wait for silent members", "short", "{{controller}}", `sum by (controller) (fleet_runtime_queue_silent{` + job + `})`},
			{"Slow reconciles", "short", "{{controller}}", `sum by (controller) (fleet_runtime_queue_slow{` + job + `})`},
			{"Ready requests", "short", "{{controller}}", `sum by (controller) (fleet_runtime_queue_depth{` + job + `})`},
			{"Parked requests", "short", "{{controller}}", `sum by (controller) (fleet_runtime_queue_parked{` + job + `})`},
			{"In flight", "short", "{{controller}}", `sum by (controller) (fleet_runtime_queue_in_flight{` + job + `})`},
			{"Members with the deepest queues", "short", "{{cluster}}", `topk(10, sum by (cluster) (fleet_runtime_queue_depth{` + job + `}))`},
			{"Requests that were dropped with their member", "ops", "{{controller}}", `sum by (controller) (rate(fleet_runtime_queue_purged_total{` + job + `}[$__rate_interval]))`},
		}),
		"sharding": build("Fleet: sharding", []string{"job"}, []graph{
			{"Live replicas", "short", "", `max(fleet_runtime_sharding_replicas{` + job + `})`},
			{"Members without an owner", "short", "", `max(fleet_runtime_sharding_members_without_owner{` + job + `})`},
			{"Members of each replica", "short", "{{instance}}", `sum by (instance) (fleet_runtime_sharding_owned_members{` + job + `})`},
			{"Weight of each replica", "short", "{{instance}}", `sum by (instance) (fleet_runtime_sharding_owned_weight{` + job + `})`},
			{"The busiest over the mean", "short", "", `max(fleet_runtime_sharding_max_over_mean{` + job + `})`},
			{"How long sessions are valid", "s", "{{instance}}", `min by (instance) (fleet_runtime_sharding_session_valid_seconds{` + job + `})`},
			{"Moves", "short", "{{reason}}", `sum by (reason) (increase(fleet_runtime_sharding_moves_total{` + job + `}[$__rate_interval]))`},
			{"Sessions lost, and suspensions", "short", "{{instance}}", `sum by (instance) (increase(fleet_runtime_sharding_sessions_lost_total{` + job + `}[$__rate_interval]) + increase(fleet_runtime_sharding_suspensions_total{` + job + `}[$__rate_interval]))`},
			{"Hand-overs, 99 %", "s", "", `histogram_quantile(0.99, sum by (le) (rate(fleet_runtime_sharding_hand_over_seconds_bucket{` + job + `}[$__rate_interval])))`},
			{"Stuck", "short", "{{instance}}", `max by (instance) (fleet_runtime_sharding_stuck{` + job + `})`},
		}),
	}
}

func build(title string, variables []string, graphs []graph) dashboard {
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	queries := map[string]string{"job": "label_values(fleet_runtime_members, job)", "cluster": `label_values(fleet_runtime_member_state{job=~"$job"}, cluster)`}
	list := make([]any, 1, 1+len(variables))
	list[0] = map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"}
	for _, name := range variables {
		list = append(list, map[string]any{
			"name": name, "type": "query", "datasource": source, "query": queries[name], "refresh": 2, "multi": true, "includeAll": true, "sort": 1,
		})
	}
	d := dashboard{
		UID: strings.NewReplacer(":", "", " ", "-").Replace(strings.ToLower(title)), Title: title, Tags: []string{project}, SchemaVersion: 39,
		Refresh: "30s", Time: map[string]any{"from": "now-6h", "to": "now"}, Templating: map[string]any{"list": list},
	}
	for i, g := range graphs {
		d.Panels = append(d.Panels, panel{
			ID: i + 1, Type: "timeseries", Title: g.title, Datasource: source,
			GridPos:     map[string]int{"x": i % 2 * 12, "y": i / 2 * 8, "w": 12, "h": 8},
			Targets:     []target{{RefID: "A", Expr: g.expr, LegendFormat: g.legend}},
			FieldConfig: map[string]any{"defaults": map[string]any{"unit": g.unit, "min": 0}, "overrides": []any{}},
		})
	}
	return d
}
