from components.program import deploy

deploy()
