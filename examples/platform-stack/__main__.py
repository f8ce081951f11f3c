"""Two teams' jobs, declared through the platform team's own component."""

import pulumi
from team_training import TeamTraining

speech = TeamTraining("speech", team="speech", image="registry.example.com/speech:3", script="finetune.py", nodes="2:6")
vision = TeamTraining("vision", team="vision", image="registry.example.com/vision:12", script="train.py", nodes="4")

pulumi.export("jobs", [speech.job.job_name, vision.job.job_name])
