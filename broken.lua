return loam.policy { pick = function(req) return nosuch end }
