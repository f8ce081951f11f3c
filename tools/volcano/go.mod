module elastic-infra.test/tools/volcano

go 1.24.0

require volcano.sh/apis v1.14.0
