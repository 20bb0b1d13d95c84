{{- define "kruise.namespace" -}}
{{- .Values.installation.namespace | default .Release.Namespace -}}
{{- end -}}

{{- define "kruise.labels" -}}
app.kubernetes.io/name: kruise
app.kubernetes.io/part-of: kruise
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "kruise.manager.selector" -}}
app.kubernetes.io/name: kruise
control-plane: controller-manager
{{- end -}}

{{- define "kruise.daemon.selector" -}}
app.kubernetes.io/name: kruise
control-plane: daemon
{{- end -}}

{{/* Reference of an image. Context: dict "root" $ "image" (one of the image values). */}}
{{- define "kruise.image" -}}
{{- with .root.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* Labels of pods, with their selector. Context: dict "root" $ "selector" (name of a template). */}}
{{- define "kruise.podLabels" -}}
{{ include .selector .root }}
app.kubernetes.io/part-of: kruise
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end -}}

{{/* What a pod learns about itself. */}}
{{- define "kruise.downwardEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
{{- end -}}

{{/* The runtime's socket belongs to root; nothing else of root is left. */}}
{{- define "kruise.daemon.securityContext" -}}
{{- $own := dict "runAsUser" 0 "runAsGroup" 0 "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.daemon.securityContext)) -}}
{{- end -}}

{{/* Constraints for the manager's replicas; those without a selector get that of its pods. */}}
{{- define "kruise.manager.spread" -}}
{{- $default := list (dict "maxSkew" 1 "topologyKey" "topology.kubernetes.io/zone" "whenUnsatisfiable" "ScheduleAnyway") -}}
{{- $selector := dict "matchLabels" (include "kruise.manager.selector" . | fromYaml) -}}
{{- $spread := list -}}
{{- range .Values.manager.topologySpreadConstraints | default $default -}}
{{- $own := dict "labelSelector" $selector "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $spread = append $spread (mergeOverwrite $own (deepCopy .)) -}}
{{- end -}}
{{- toYaml $spread -}}
{{- end -}}

{{/* Whether the CRD of a kind is in this chart. Context: dict "root" $ "plural" PLURAL. */}}
{{- define "kruise.serves" -}}
{{- if .root.Files.Get (printf "files/crds/apps.kruise.io_%s.yaml" .plural) -}}true{{- end -}}
{{- end -}}

{{/* Whether a feature gate that is off by default is on by the values. The last mention of its name counts, and before AllAlpha. */}}
{{- define "kruise.gate" -}}
{{- $gates := .root.Values.featureGates | default "" | lower | replace " " "" -}}
{{- $said := "" -}}
{{- range $name := list "allalpha" (lower .name) -}}
{{- range $setting := splitList "," $gates -}}
{{- $pair := splitn "=" 2 $setting -}}
{{- if eq $pair._0 $name -}}
{{- $said = ternary "true" "" (has (default "" $pair._1) (list "true" "t" "1")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $said -}}
{{- end -}}

{{/* Whether a feature gate that is on by default is off by the values. The last mention of its name counts, and before AllBeta. */}}
{{- define "kruise.gateOff" -}}
{{- $gates := .root.Values.featureGates | default "" | lower | replace " " "" -}}
{{- $off := "" -}}
{{- range $name := list "allbeta" (lower .name) -}}
{{- range $setting := splitList "," $gates -}}
{{- $pair := splitn "=" 2 $setting -}}
{{- if eq $pair._0 $name -}}
{{- $off = ternary "" "true" (has (default "" $pair._1) (list "true" "t" "1")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $off -}}
{{- end -}}

{{/* Names of the CRDs that are converted by a webhook. */}}
{{- define "kruise.converted" -}}
{{- $names := list -}}
{{- range $path, $_ := .Files.Glob "files/crds/*.yaml" -}}
{{- $crd := $.Files.Get $path | fromYaml -}}
{{- if eq (dig "spec" "conversion" "strategy" "None" $crd) "Webhook" -}}
{{- $names = append $names $crd.metadata.name -}}
{{- end -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* Kinds of OpenKruise that people make objects of, by API group; those whose CRD is in this chart are served. */}}
{{- define "kruise.unserved" -}}
{{- $kinds := dict
      "apps.kruise.io" (list "AdvancedCronJob" "BroadcastJob" "CloneSet" "ContainerRecreateRequest" "DaemonSet" "EphemeralJob"
        "ImageListPullJob" "ImagePullJob" "PersistentPodState" "PodProbeMarker" "ResourceDistribution" "SidecarSet" "StatefulSet"
        "UnitedDeployment" "WorkloadSpread")
      "policy.kruise.io" (list "PodUnavailableBudget") -}}
{{- $names := dict -}}
{{- range $path, $_ := .Files.Glob "files/crds/*.yaml" -}}
{{- $_ := set $names (get (get (get ($.Files.Get $path | fromYaml) "spec") "names") "kind") true -}}
{{- end -}}
{{- $found := dict -}}
{{- range $group, $list := $kinds -}}
{{- range $kind := $list -}}
{{- if not (hasKey $names $kind) -}}
{{- $_ := set $found $kind $group -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Labels and annotations of webhook configurations. */}}
{{- define "kruise.webhookMetadata" -}}
labels:
  {{- include "kruise.labels" . | nindent 2 }}
{{- $annotations := deepCopy .Values.externalCerts.annotations -}}
{{- if .Values.webhookConfiguration.aksIntegration -}}
{{- $_ := set $annotations "admissions.enforcer/disabled" "true" -}}
{{- end -}}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* One webhook of a kind of ours. Context: dict "root" $ "verb" VERB "prefix" PREFIX "of" (dict "kind" "plural" "scope"). */}}
{{- define "kruise.webhook" -}}
- name: {{ .prefix }}{{ .of.kind }}.kb.io
  admissionReviewVersions: ["v1"]
  sideEffects: None
  matchPolicy: Equivalent
  failurePolicy: {{ if .of.closed }}Fail{{ else }}{{ .root.Values.webhookConfiguration.failurePolicy | default "Ignore" }}{{ end }}
  timeoutSeconds: {{ .root.Values.webhookConfiguration.timeoutSeconds }}
  clientConfig:
    service:
      name: kruise-webhook-service
      namespace: {{ include "kruise.namespace" .root }}
      path: /{{ .verb }}-apps-kruise-io-{{ .of.kind }}
  # What is on its way out is let go, whatever it says.
  matchConditions:
    - name: stays
      expression: "!has(object.metadata.deletionTimestamp)"
  rules:
    - apiGroups: ["apps.kruise.io"]
      apiVersions: ["v1alpha1", "v1beta1"]
      operations: ["CREATE", "UPDATE"]
      resources: [{{ .of.plural | quote }}]
      scope: {{ .of.scope }}
{{- end -}}

{{/* A pod that runs the manager's program once. Context: dict "root" $ "args" (list of arguments) "account" NAME "ca" (whether it mounts the trust bundle). */}}
{{- define "kruise.oncePod" -}}
restartPolicy: Never
{{- if .account }}
serviceAccountName: {{ .account }}
{{- else }}
automountServiceAccountToken: false
{{- end }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.helmHooks.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.helmHooks.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: manager
    image: {{ include "kruise.image" (dict "root" .root "image" .root.Values.manager.image) }}
    imagePullPolicy: {{ .root.Values.manager.image.pullPolicy }}
    command: ["/kruise-manager"]
    args: {{ toJson .args }}
    env:
      {{- include "kruise.downwardEnv" . | nindent 6 }}
    resources:
      requests:
        cpu: 10m
        memory: 16Mi
      limits:
        memory: 128Mi
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: ["ALL"]
    {{- if .ca }}
    volumeMounts:
      - name: ca
        mountPath: /var/run/kruise/ca
        readOnly: true
    {{- end }}
{{- if .ca }}
volumes:
  - name: ca
    configMap:
      name: kruise-manager-ca
{{- end }}
{{- end -}}
