{{/* Name of an object of cluster scope: two installations share a cluster. Arguments: root, name. */}}
{{- define "cachescope.clusterName" -}}
cachescope-{{ .root.Release.Namespace }}-{{ .name }}
{{- end }}

{{/* Labels that select the pods of a component; they never change. Arguments: root, component. */}}
{{- define "cachescope.selector" -}}
app.kubernetes.io/name: cachescope-{{ .component }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: cachescope
{{- end }}

{{/* Labels of every object. Arguments: root, component. */}}
{{- define "cachescope.labels" -}}
{{ include "cachescope.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of pods: the user's, and over them those that select. A new chart version alone changes none. Arguments: root, component. */}}
{{- define "cachescope.podLabels" -}}
{{- $own := include "cachescope.selector" . | fromYaml -}}
{{- toYaml (merge (dict) $own (index .root.Values .component "podLabels")) -}}
{{- end }}

{{/* Reference of an image. Arguments: root, image. */}}
{{- define "cachescope.image" -}}
{{- $image := index .root.Values.images .image -}}
{{- $image.repository -}}
{{- if or $image.tag (not $image.digest) }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{/* Port of the clients' Service. */}}
{{- define "cachescope.port" -}}
{{- .Values.gateway.service.port | default (ternary 443 80 (not (empty .Values.settings.tls))) -}}
{{- end }}
