"""What is measured: each recipe names one of these, which reads the metrics of its claims."""

MEASURES = {
    "audit": "stemrepro.measures.audit:PaperAudit",
    "capacity": "stemrepro.measures.capacity:Capacity",
    "comparison": "stemrepro.measures.comparison:Comparison",
    "context": "stemrepro.measures.context:Context",
    "conversion": "stemrepro.measures.conversion:Conversion",
    "costs": "stemrepro.measures.costs:Costs",
    "geometry": "stemrepro.measures.geometry:Angles",
    "knowledge": "stemrepro.measures.knowledge:Knowledge",
    "mid-training": "stemrepro.measures.mid_training:MidTraining",
    "leaderboard": "stemrepro.measures.leaderboard:Leaderboard",
    "model-capacity": "stemrepro.measures.model_capacity:ModelCapacity",
    "model-edits": "stemrepro.measures.model_edits:ModelEdits",
    "model-scores": "stemrepro.measures.model_scores:ModelScores",
    "model-spread": "stemrepro.measures.model_spread:ModelSpread",
    "needle": "stemrepro.measures.needle:Needle",
    "offload": "stemrepro.measures.offload:Offload",
    "reasoning": "stemrepro.measures.reasoning:Reasoning",
    "premise": "stemrepro.measures.premise:Premise",
    "premise-by-size": "stemrepro.measures.premise_by_size:PremiseBySize",
    "recall": "stemrepro.measures.recall:Recall",
    "retrofit": "stemrepro.measures.retrofit:Retrofit",
    "rivals": "stemrepro.measures.rivals:Rivals",
    "roi": "stemrepro.measures.roi:TrainingRoi",
    "serving": "stemrepro.measures.serving:Serving",
    "sizes": "stemrepro.measures.sizes:Sizes",
    "stability": "stemrepro.measures.stability:Stability",
    "tables": "stemrepro.measures.tables:Tables",
    "scaling": "stemrepro.measures.scaling:Scaling",
}
"""A subclass of stemrepro.measures.base.Measure by the name that a recipe's `measure:` has.

They are named, not imported: an edit of one leaves the results of recipes with another up to date.
"""
