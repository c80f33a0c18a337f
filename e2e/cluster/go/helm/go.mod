module cachescope.dev/e2e/helm

go 1.24.0

require helm.sh/helm/v4 v4.0.5 // indirect
