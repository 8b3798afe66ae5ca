"""`dfrs farm`: clusters of different hardware, managed as one ([Atif2011])."""

import typer

from dfrs.cli.heterogeneous import calibrate as farm_calibrate
from dfrs.cli.heterogeneous import predict as farm_predict
from dfrs.cli.heterogeneous import profile as farm_profile
from dfrs.cli.heterogeneous import profile_job as farm_profile_job
from dfrs.cli.heterogeneous import simulate as farm_simulate
from dfrs.cli.verbs import Verb

app = typer.Typer(
    help="""A farm: clusters of different hardware, managed as one. Predict speeds, simulate, measure.

    A job runs faster on one cluster of a farm than on another. Measure the clusters (calibrate),
    profile an MPI program, and predict how long it would take on each cluster. Or simulate a list
    of jobs, with and without migrations between the clusters.""",
    short_help="A farm: clusters of different hardware, managed as one. Predict speeds, simulate, measure.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command("predict")(farm_predict.predict)
app.command("simulate")(farm_simulate.simulate)
app.command("profile")(farm_profile.profile)
app.command("profile-job")(farm_profile_job.profile_job)
app.command("calibrate")(farm_calibrate.calibrate)


VERBS = (Verb(app, name="farm"),)
