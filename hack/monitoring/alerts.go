package main

// alert is one rule of Prometheus.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

const (
	warning  = "warning"
	critical = "critical"
	// page is where each alert has a section with cause, check and cure, named as the alert in lower case.
	page = "https://github.com/fleet-runtime/fleet-runtime/blob/main/docs/operating.md#"
	// down are the states of members that should be Ready.
	down = `state=~"Pending|Connecting|Unreachable"`
	// perMember leaves out which replica has said it: a standby says of each member what the leader says.
	perMember = "max by (namespace, job, cluster) "
)

// alerts are the rules. All that fire name the metrics' job; those of members name the cluster.
func alerts() []alert {
	const expiry = "fleet_runtime_member_credentials_expiry_timestamp_seconds"
	return []alert{
		rule("FleetMemberNotReady", "10m", warning, "{{ $labels.cluster }} is not Ready",
			perMember+"(fleet_runtime_member_state{"+down+"}) == 1"),
		rule("FleetManyNotReady", "5m", critical, "{{ $value | humanizePercentage }} of the members of {{ $labels.job }} are not Ready",
			"sum by (namespace, job) (fleet_runtime_members{"+down+"}) / sum by (namespace, job) (fleet_runtime_members{state!~\"NotOwned|Drained\"}) > 0.2"),
		rule("FleetKindNotSynced", "15m", warning, "{{ $labels.kind }} of {{ $labels.cluster }} cannot be listed or watched",
			"max by (namespace, job, cluster, kind) (fleet_runtime_member_not_synced) == 1"),
		// Credentials that live for hours are renewed all the time: they are no news before the end is near. Those that live for ten
		// minutes are renewed two minutes before they end: they are news if they are the same as ten minutes ago.
		rule("FleetCredentialExpiring", "2h", warning, "The credentials of {{ $labels.cluster }} expire in {{ $value | humanizeDuration }}",
			"min by (namespace, job, cluster) ("+expiry+" - time() unless changes("+expiry+"[1d]) > 0) < 7 * 86400"),
		rule("FleetCredentialExpiring", "1m", critical, "The credentials of {{ $labels.cluster }} expire in {{ $value | humanizeDuration }}",
			"min by (namespace, job, cluster) ("+expiry+" - time() < 300 and "+expiry+" == "+expiry+" offset 10m)"),
		rule("FleetQueueStarved", "15m", warning, "All workers of {{ $labels.controller }} have been busy, and requests wait",
			"(fleet_runtime_queue_counting >= fleet_runtime_queue_workers) > 0 and on (namespace, job, instance, controller) "+
				"sum by (namespace, job, instance, controller) (fleet_runtime_queue_depth - fleet_runtime_queue_parked) > 0"),
		// Reconciles of one cluster that hang do not count against the workers, and nothing else of that cluster begins.
		rule("FleetQueueStarved", "15m", warning, "Requests of {{ $labels.cluster }} wait for {{ $labels.controller }}, and none has begun",
			"sum by (namespace, job, instance, controller, cluster) (fleet_runtime_queue_depth - fleet_runtime_queue_parked) > 0 unless "+
				"sum by (namespace, job, instance, controller, cluster) (increase(fleet_runtime_queue_wait_seconds_count[10m])) > 0"),
		rule("FleetDrainStuck", "10m", warning, "{{ $labels.cluster }} is still being drained",
			perMember+"(fleet_runtime_member_state{state=\"Draining\"}) == 1"),
		rule("FleetMemberWithoutOwner", "2m", critical, "{{ $value }} members of {{ $labels.job }} have no owner",
			"max by (namespace, job) (fleet_runtime_sharding_members_without_owner) > 0"),
		rule("FleetHubLost", "1m", critical, "{{ $labels.instance }} of {{ $labels.job }} does not get through to its local cluster",
			"max by (namespace, job, instance) (fleet_runtime_sharding_session_valid_seconds == bool 0 or fleet_runtime_sharding_stuck or "+
				"fleet_runtime_discovery_problems{reason=~\"Refused|Timeout|Unauthorized\"}) > 0"),
	}
}

func rule(name, after, severity, summary, expr string) alert {
	return alert{
		Alert: name, Expr: expr, For: after, Labels: map[string]string{"severity": severity},
		Annotations: map[string]string{"summary": summary, "runbook_url": page + anchor(name)},
	}
}
