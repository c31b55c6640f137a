package packed

// dictionary has what is in most descriptions of clusters, so that none need hold it: the words of kubeconfigs and of metadata, and
// what X.509 certificates and their keys have in common. What is likely is at the end.
const dictionary = `{"apiVersion":"v1","kind":"Cluster","metadata":{"name":"","namespace":"","uid":"","resourceVersion":"","generation":1,` +
	`"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"cluster.x-k8s.io/cluster-name":"","topology.kubernetes.io/region":"",` +
	`"environment":"production"},"annotations":{},"finalizers":[],"ownerReferences":[]},"spec":{},"status":{"conditions":[` +
	`{"type":"Ready","status":"True","lastTransitionTime":"","reason":"","message":""}]}}` +
	`argocd.argoproj.io/secret-type cluster {"tlsClientConfig":{"insecure":false,"serverName":"","caData":"","certData":"","keyData":"",` +
	`"bearerToken":"","server":"https://` +
	"fleet-runtime.dev/leave fleet-runtime.dev/context cluster.x-k8s.io/secret" +
	"0\x82\x02\xe50\x82\x01\xcd\xa0\x03\x02\x01\x02\x02\x01\x000\r\x06\t*\x86H\x86\xf7\r\x01\x01\v\x05\x000\x150\x13\x06\x03U\x04\x03\x13\nkubernetes" +
	"0\x82\x01\"0\r\x06\t*\x86H\x86\xf7\r\x01\x01\x01\x05\x00\x03\x82\x01\x0f\x000\x82\x01\n\x02\x82\x01\x01\x00" +
	"\x02\x03\x01\x00\x01\xa3B0@0\x0e\x06\x03U\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x02\xa40\x0f\x06\x03U\x1d\x13\x01\x01\xff\x04\x050\x03\x01\x01\xff0\x1d\x06\x03U\x1d\x0e\x04\x16\x04\x14" +
	"0\r\x06\t*\x86H\x86\xf7\r\x01\x01\v\x05\x00\x03\x82\x01\x01\x00" +
	"0\x17\x06\x03U\x04\n\x13\x0esystem:masters1\x190\x17\x06\x03U\x04\x03\x13\x10kubernetes-admin" +
	"\xa3V0T0\x0e\x06\x03U\x1d\x0f\x01\x01\xff\x04\x04\x03\x02\x05\xa00\x13\x06\x03U\x1d%\x04\f0\n\x06\b+\x06\x01\x05\x05\a\x03\x02" +
	"0\f\x06\x03U\x1d\x13\x01\x01\xff\x04\x020\x000\x1f\x06\x03U\x1d#\x04\x180\x16\x80\x14" +
	"0\x82\x04\xa4\x02\x01\x00\x02\x82\x01\x01\x00\x02\x03\x01\x00\x01\x02\x82\x01\x00\x02\x81\x81\x00" +
	"0\x82\x01\xb80\x82\x01^\xa0\x03\x02\x01\x02\x02\b0\n\x06\b*\x86H\xce=\x04\x03\x020\x1e\x17\r260101000000Z\x17\r360101000000Z0" +
	"0Y0\x13\x06\a*\x86H\xce=\x02\x01\x06\b*\x86H\xce=\x03\x01\a\x03B\x00\x04" +
	"0\n\x06\b*\x86H\xce=\x04\x03\x02\x03I\x000F\x02!\x00\x03H\x000E\x02!\x00\x02 " +
	"0w\x02\x01\x01\x04 \xa0\n\x06\b*\x86H\xce=\x03\x01\a\xa1D\x03B\x00\x04" +
	"0\x81\x87\x02\x01\x000\x13\x06\a*\x86H\xce=\x02\x01\x06\b*\x86H\xce=\x03\x01\a\x04m0k\x02\x01\x01\x04 \xa1D\x03B\x00\x04" +
	"-----BEGIN RSA PRIVATE KEY-----\n\n-----END RSA PRIVATE KEY-----\n-----BEGIN EC PRIVATE KEY-----\n\n-----END EC PRIVATE KEY-----\n" +
	"-----BEGIN PRIVATE KEY-----\n\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n" +
	"    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: \n      args:\n      - \n      interactiveMode: Never\n" +
	"    token: eyJhbGciOiJSUzI1NiIsImtpZCI6I\n    insecure-skip-tls-verify: true\n    proxy-url: http://\n" +
	"apiVersion: v1\nkind: Config\npreferences: {}\ncurrent-context: default\nclusters:\n- name: default\n  cluster:\n    server: https://\n" +
	"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: \n    server: https://127.0.0.1:6443\n    tls-server-name: localhost\n" +
	"  name: kubernetes\ncontexts:\n- context:\n    cluster: kubernetes\n    namespace: default\n    user: kubernetes-admin\n" +
	"  name: kubernetes-admin@kubernetes\ncurrent-context: kubernetes-admin@kubernetes\nkind: Config\nusers:\n- name: kubernetes-admin\n" +
	"  user:\n    client-certificate-data: \n    client-key-data: \n" +
	"\n\x00\x12\x00\x1a\adefault\"\x00*$00000000-0000-4000-8000-0000000000002\x00B\b\b\x00\x10\x00Z \n\x1cfleet-runtime.dev/kubeconfig\x12\x04true" +
	"Z3\n+sigs.k8s.io/multicluster-runtime-kubeconfig\x12\x04true\x12\xcb\x12\n\nkubeconfig\x12\xbc\x12apiVersion: v1\n\x1a\x06Opaque"
