"""Pages as a browser shows them: what a click does, what an audit of accessibility finds, what is printed."""
