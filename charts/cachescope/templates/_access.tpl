{{/*
A component's rights wherever pools are: a Role and its binding, or in Cluster mode a ClusterRole and its binding.
Arguments: root, component, rules (YAML).
*/}}
{{- define "cachescope.access" -}}
{{- $cluster := eq .root.Values.scope "Cluster" }}
{{- $kind := ternary "ClusterRole" "Role" $cluster }}
{{- $name := printf "cachescope-%s" .component }}
{{- if $cluster }}{{ $name = include "cachescope.clusterName" (dict "root" .root "name" .component) }}{{ end }}
{{- include "cachescope.role" (dict "root" .root "component" .component "kind" $kind "name" $name "rules" .rules) }}
{{- end }}

{{/* A role and its binding to the component's ServiceAccount. Arguments: root, component, kind, name, rules. */}}
{{- define "cachescope.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  {{- include "cachescope.roleMetadata" . | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  {{- include "cachescope.roleMetadata" . | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: cachescope-{{ .component }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{/* Arguments: root, component, kind, name. */}}
{{- define "cachescope.roleMetadata" -}}
name: {{ .name }}
{{- if eq .kind "Role" }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "cachescope.labels" . | nindent 2 }}
{{- end }}

{{/* All that gateways and people read of the API. */}}
{{- define "cachescope.kinds" -}}
[servingpools, tenants, cachescopes, publicsources, cacheepochs, epochledgers, fenceleases]
{{- end }}
