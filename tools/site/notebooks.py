def page(p):
    return ""
