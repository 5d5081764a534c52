{{- define "lastword.labels" -}}
app.kubernetes.io/name: lastword
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
